// Job shows a limit around work that is not a request: three workers take e-mails from a
// queue, and a provider accepts no more than 5 in 2 s, and from each customer no more than 6.
// A worker that is denied waits and tries again; a customer's mail that is over the limit
// is put off. It ends by itself after some 2 s.
//
//	go run ./examples/job
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

const (
	workers = 3
	// What the provider accepts, all workers together.
	providerLimit  = 5
	providerWindow = 2 * time.Second
	// What a customer may send.
	customerLimit  = 6
	customerWindow = time.Minute
)

// mail is a job.
type mail struct {
	n        int
	customer string
}

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run puts mails into a queue and has the workers send them.
func run(ctx context.Context, out io.Writer) error {
	backend := memory.New() // or client.Backend(), where the workers are several processes
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	s := &sender{limiter: limiter, entities: throttr.NewEntities(limiter), out: out, start: time.Now()}

	queue := make(chan mail, 14)
	for n := range cap(queue) {
		queue <- mail{n: n + 1, customer: []string{"acme", "acme", "smith"}[n%3]}
	}
	close(queue)

	errs := make([]error, workers)
	var pool sync.WaitGroup
	for i := range errs {
		pool.Go(func() { errs[i] = s.work(ctx, queue) })
	}
	pool.Wait()
	fmt.Fprintf(out, "%d sent, %d put off, in %.1f s\n", s.sent, s.putOff, time.Since(s.start).Seconds())
	return errors.Join(errs...)
}

// sender sends mails within the limits.
type sender struct {
	limiter  *throttr.RateLimit
	entities *throttr.Entities
	start    time.Time

	mu           sync.Mutex // guards what follows
	out          io.Writer
	sent, putOff int
}

// work sends mails until there are none, or something fails.
func (s *sender) work(ctx context.Context, queue <-chan mail) error {
	for m := range queue {
		var denied *throttr.RateLimitError
		err := s.entities.Execute(ctx, m.customer, "send mail", customerLimit, customerWindow, nil,
			func(ctx context.Context) error { return s.send(ctx, m) })
		switch {
		case errors.As(err, &denied):
			s.tell(&s.putOff, "mail %2d of %-5s put off for %v", m.n, m.customer, denied.RetryAfter.Round(time.Minute))
		case err != nil:
			return err
		}
	}
	return nil
}

// send sends a mail as soon as the provider accepts it.
func (s *sender) send(ctx context.Context, m mail) error {
	if err := wait(ctx, s.limiter, "provider", providerWindow, providerLimit); err != nil {
		return err
	}
	s.tell(&s.sent, "mail %2d of %-5s sent", m.n, m.customer) // here it would be sent
	return nil
}

// wait waits until a hit is allowed.
func wait(ctx context.Context, limiter *throttr.RateLimit, key string, window time.Duration, limit uint64) error {
	for {
		res, err := limiter.Hit(ctx, key, window, limit)
		if err != nil || res.Allowed {
			return err
		}
		select {
		case <-time.After(res.RetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell counts and prints what has become of a mail.
func (s *sender) tell(count *int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	fmt.Fprintf(s.out, "%4.1fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}
