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
	// duration is the time in which users hit. It ends in the third window.
	duration = 4900 * time.Millisecond
)

// user is a user, and how often there are hits of theirs.
type user struct {
	name       string
	goroutines int
	every      time.Duration // between two hits of a goroutine
}

var users = []user{
	{"alice", 2, 450 * time.Millisecond}, // 8 or 9 hits in a window
	{"bob", 1, 310 * time.Millisecond},   // 6 or 7 hits
	{"carol", 1, 550 * time.Millisecond}, // 3 or 4 hits, which are never denied
}

// hit is a hit and its result.
type hit struct {
	user string
	at   time.Duration // since the start
	res  throttr.Result
}

// simulate runs the goroutines of all users, and prints each hit and a summary.
func simulate(ctx context.Context, limiter *throttr.RateLimit, out io.Writer) error {
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
	return cleanUp(ctx, limiter)
}

// hit repeats hits until the duration is over.
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
		if at > duration {
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

// cleanUp ends the open windows, so that Close removes their records. It would leave the records of
// open windows, because other clients may count in them.
func cleanUp(ctx context.Context, limiter *throttr.RateLimit) error {
	for _, u := range users {
		if err := limiter.Reset(ctx, "quickstart:"+u.name, scale); err != nil {
			return fmt.Errorf("reset %s: %w", u.name, err)
		}
	}
	return nil
}
