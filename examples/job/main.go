// Job limits background work. Three workers send e-mails from a queue. A provider accepts 5 mails
// in 2 s, and each customer may send 6 in a minute. If the provider's limit is reached, the workers
// wait in line. If a customer's limit is exceeded, the mail is postponed. The program exits after
// about 2 s.
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
	"github.com/throttr-go/throttr/entities"
	"github.com/throttr-go/throttr/memory"
)

const workers = 3

var (
	// provider is for all workers together.
	provider = throttr.Limit{Name: "provider", Max: 5, Scale: 2 * time.Second}
	// sendMail is for each customer.
	sendMail = throttr.Limit{Name: "send mail", Max: 6, Scale: time.Minute}
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

// run puts mails into a queue and starts workers that send them.
func run(ctx context.Context, out io.Writer) error {
	backend := memory.New() // or a backend on Redis, if the workers are several processes
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	s := &sender{limiter: limiter, customers: entities.New(limiter), out: out, start: time.Now()}

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
	fmt.Fprintf(out, "%d sent, %d postponed, in %.1f s\n", s.sent, s.postponed, time.Since(s.start).Seconds())
	return errors.Join(errs...)
}

// sender sends mails within the limits.
type sender struct {
	limiter   *throttr.RateLimit
	customers *entities.Limiter
	start     time.Time

	mu              sync.Mutex // guards what follows
	out             io.Writer
	sent, postponed int
}

// work sends mails until the queue is empty or an error occurs.
func (s *sender) work(ctx context.Context, queue <-chan mail) error {
	for m := range queue {
		var denied *throttr.RateLimitError
		err := s.customers.Execute(ctx, m.customer, sendMail, func(ctx context.Context) error { return s.send(ctx, m) })
		switch {
		case errors.As(err, &denied):
			s.report(&s.postponed, "mail %2d of %-5s postponed for %v", m.n, m.customer, denied.Result.RetryAfter.Round(time.Minute))
		case err != nil:
			return err
		}
	}
	return nil
}

// send waits until the provider accepts a mail, and sends it. The workers wait in the order in
// which they come.
func (s *sender) send(ctx context.Context, m mail) error {
	if _, err := s.limiter.Wait(ctx, "mails", provider, 1); err != nil {
		return err
	}
	s.report(&s.sent, "mail %2d of %-5s sent", m.n, m.customer) // A real program sends it here.
	return nil
}

// report increments a count and prints a line.
func (s *sender) report(count *int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	fmt.Fprintf(s.out, "%4.1fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}
