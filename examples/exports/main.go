// Exports limits how many exports of a customer run at a time, over all workers. An export takes a place, works under
// its context, and asks right before the upload whether it still has the place. The archive refuses the upload of a
// worker that was overtaken. The program exits after less than a second.
//
//	go run ./examples/exports
//	go run ./examples/exports redis://127.0.0.1:6379	with an import of redisbackend, for workers in many processes
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
	"github.com/throttr-go/throttr/inflight"
)

// exports is one export of a customer at a time. The places of a worker that crashes are free after 10 s.
var exports = inflight.Limit{Name: "exports", Max: 1, Lease: 10 * time.Second}

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := "memory://"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	backend, err := throttr.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	if err := run(ctx, backend, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run runs five exports of two customers with as many workers.
func run(ctx context.Context, backend throttr.Backend, out io.Writer) error {
	limiter := inflight.New(backend)
	defer limiter.Close()
	w := &worker{limiter: limiter, archive: archive{tokens: map[string]uint64{}}}
	errs := make([]error, 5)
	var all sync.WaitGroup
	for i := range errs {
		customer := []string{"acme", "acme", "smith"}[i%3]
		all.Go(func() { errs[i] = w.export(ctx, customer) })
	}
	all.Wait()
	fmt.Fprintf(out, "%d archives of acme, %d of smith\n", w.archive.count["acme"], w.archive.count["smith"])
	return errors.Join(errs...)
}

// worker exports.
type worker struct {
	limiter *inflight.Limiter
	archive archive
}

// export exports the data of a customer when it is its turn.
func (w *worker) export(ctx context.Context, customer string) error {
	place, err := w.limiter.Acquire(ctx, "customer:"+customer, exports, 1)
	if err != nil {
		return err
	}
	defer place.Release()
	data, err := collect(place.Context(), customer) // ends when the place is lost
	if err != nil {
		return errors.Join(err, context.Cause(place.Context()))
	}
	if !place.Valid() { // the process may have stood still since
		return inflight.ErrLost
	}
	return w.archive.upload(customer, data, place.Token())
}

// collect takes a while.
func collect(ctx context.Context, customer string) (string, error) {
	select {
	case <-time.After(100 * time.Millisecond):
		return "data of " + customer, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// archive keeps the last upload of each customer. It refuses those of workers that were overtaken: a place protects
// the count, and not what was begun with it.
type archive struct {
	mu     sync.Mutex // guards what follows
	tokens map[string]uint64
	count  map[string]int
}

func (a *archive) upload(customer, _ string, token uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.tokens[customer] {
		return fmt.Errorf("the export of %s was overtaken", customer)
	}
	if a.count == nil {
		a.count = map[string]int{}
	}
	a.tokens[customer] = token
	a.count[customer]++
	return nil
}
