package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
)

const (
	limit = 5
	scale = 2 * time.Second
	// lasts is how long there are hits: the third window is open when it ends.
	lasts = 4900 * time.Millisecond
)

// user is somebody who hits.
type user struct {
	name       string
	goroutines int
	every      time.Duration // how often each of them hits
}

var users = []user{
	{"alice", 2, 450 * time.Millisecond}, // 8 or 9 hits in a window
	{"bob", 1, 310 * time.Millisecond},   // 6 or 7
	{"carol", 1, 550 * time.Millisecond}, // 3 or 4: never denied
}

// hit is one hit and the decision on it.
type hit struct {
	user string
	at   time.Duration // since the start
	res  throttr.Result
}

// show lets the users hit, and prints a line for each hit and a summary.
func show(ctx context.Context, limiter *throttr.RateLimit, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hits := make(chan hit)
	var hitters sync.WaitGroup
	start := time.Now()
	for _, u := range users {
		for i := range u.goroutines {
			first := time.Duration(i) * u.every / time.Duration(u.goroutines)
			hitters.Go(func() {
				if err := u.hit(ctx, limiter, start, first, hits); err != nil {
					cancel(err)
				}
			})
		}
	}
	go func() {
		hitters.Wait()
		close(hits)
	}()

	t := newTable(out)
	for h := range hits {
		t.line(h)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.summary()
	return tidy(ctx, limiter)
}

// hit hits again and again.
func (u user) hit(ctx context.Context, limiter *throttr.RateLimit, start time.Time, first time.Duration, hits chan<- hit) error {
	next := time.NewTimer(first)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		at := time.Since(start)
		if at > lasts {
			return nil
		}
		res, err := limiter.Hit(ctx, "quickstart:"+u.name, scale, limit)
		if err != nil {
			return err
		}
		hits <- hit{user: u.name, at: at, res: res}
		next.Reset(u.every)
	}
}

// tidy ends the windows that are open, and gives the limiter the time to remove the
// records of those before: it does so, in the background, a scale after their end.
func tidy(ctx context.Context, limiter *throttr.RateLimit) error {
	for _, u := range users {
		if err := limiter.Reset(ctx, "quickstart:"+u.name, scale); err != nil {
			return fmt.Errorf("reset %s: %w", u.name, err)
		}
	}
	select {
	case <-time.After(scale):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
