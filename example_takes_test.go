package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

// A refused take leaves what it did not get to others.
func ExampleRateLimit_Take() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	for _, n := range []uint64{8, 5, 2} {
		res, err := limiter.Take(context.Background(), "user:42", time.Minute, 10, n)
		fmt.Println(n, res.Allowed, res.Remaining, err)
	}
	_, err := limiter.Take(context.Background(), "user:42", time.Minute, 10, 11)
	var cost *throttr.CostError
	fmt.Println(errors.As(err, &cost))
	// Output:
	// 8 true 2 <nil>
	// 5 false 2 <nil>
	// 2 true 0 <nil>
	// true
}

// Requests that the user's limit refuses do not use up the limit that all users share.
func ExampleRateLimit_TakeAll() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	for range 4 {
		ok, results, err := limiter.TakeAll(ctx,
			throttr.Limit{Key: "user:42", Scale: time.Second, Limit: 2, N: 1},
			throttr.Limit{Key: "everybody", Scale: time.Minute, Limit: 100, N: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ok, results[1].Remaining)
	}
	// Output:
	// true 99
	// true 98
	// false 98
	// false 98
}

// A request reserves an estimate of what it costs, and commits the actual cost.
func ExampleRateLimit_Reserve() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	tokens := throttr.Limit{Key: "tokens:acme", Scale: time.Minute, Limit: 1000, N: 700}
	rv, err := limiter.Reserve(ctx, tokens)
	fmt.Println(rv.OK(), err)
	other, err := limiter.Reserve(ctx, tokens)
	fmt.Println(other.OK(), err)

	fmt.Println(rv.Commit(ctx, 100)) // the answer was short
	other, err = limiter.Reserve(ctx, tokens)
	fmt.Println(other.OK(), other.Results()[0].Remaining, err)
	fmt.Println(other.Cancel(ctx)) // there was no answer
	n, err := limiter.Get(ctx, "tokens:acme", time.Minute)
	fmt.Println(n, err)
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
	// true 200 <nil>
	// <nil>
	// 100 <nil>
}

// A batch sends at most 2 messages in 50 ms, and waits in between.
func ExampleRateLimit_Wait() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	begun := time.Now()
	for i := range 5 {
		if _, err := limiter.Wait(context.Background(), "provider", 50*time.Millisecond, 2, 1); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("message", i+1)
	}
	fmt.Println(time.Since(begun) >= 100*time.Millisecond)
	// Output:
	// message 1
	// message 2
	// message 3
	// message 4
	// message 5
	// true
}

// waitForAll waits until all takes are granted. Callers that wait at the same time are served in any
// order.
func waitForAll(ctx context.Context, limiter *throttr.RateLimit, limits ...throttr.Limit) error {
	for {
		ok, results, err := limiter.TakeAll(ctx, limits...)
		if ok || err != nil {
			return err
		}
		var pause time.Duration
		for _, res := range results {
			pause = max(pause, res.RetryAfter) // 0 if this limit would have granted its take
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Wait waits for one limit. To wait for several, try again after the longest RetryAfter.
func ExampleRateLimit_TakeAll_wait() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	for i := range 3 {
		err := waitForAll(context.Background(), limiter,
			throttr.Limit{Key: "provider", Scale: 20 * time.Millisecond, Limit: 1, N: 1},
			throttr.Limit{Key: "customer:7", Scale: 10 * time.Millisecond, Limit: 1, N: 1})
		fmt.Println("mail", i, err)
	}
	// Output:
	// mail 0 <nil>
	// mail 1 <nil>
	// mail 2 <nil>
}

// A wait that would be in vain fails at once.
func ExampleDeadlineError() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 2 {
		_, err := limiter.Wait(ctx, "report", time.Hour, 1, 1)
		var late *throttr.DeadlineError
		if errors.As(err, &late) {
			fmt.Println("come back in", time.Until(late.At).Round(time.Minute))
		}
	}
	// Output: come back in 1h0m0s
}

// Peek counts nothing.
func ExampleRateLimit_Peek() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	limiter.Take(ctx, "user:42", time.Minute, 10, 8)
	for _, n := range []uint64{1, 5} {
		res, err := limiter.Peek(ctx, "user:42", time.Minute, 10, n)
		fmt.Println(n, res.Allowed, res.Remaining, err)
	}
	// Output:
	// 1 true 2 <nil>
	// 5 false 2 <nil>
}

func ExampleWithMaxWaiters() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, throttr.WithMaxWaiters(1))
	ctx, cancel := context.WithCancel(context.Background())
	limiter.Take(ctx, "report", time.Hour, 1, 1)
	first := make(chan error)
	go func() {
		for {
			if _, err := limiter.Wait(ctx, "report", time.Hour, 1, 1); !errors.Is(err, throttr.ErrOverloaded) {
				first <- err
				return
			}
		}
	}()
	for {
		short, stop := context.WithTimeout(ctx, time.Minute)
		_, err := limiter.Wait(short, "report", time.Hour, 1, 1)
		stop()
		if errors.Is(err, throttr.ErrOverloaded) {
			fmt.Println("one waits already")
			break
		}
	}
	cancel()
	fmt.Println(errors.Is(<-first, context.Canceled))
	// Output:
	// one waits already
	// true
}

// A reservation of an entity is refused with a RateLimitError.
func ExampleEntities_Reserve() {
	backend := memory.New()
	defer backend.Close()
	entities := throttr.NewEntities(throttr.NewRateLimit(backend))
	ctx := context.Background()
	rv, err := entities.Reserve(ctx, "acme", "tokens", 1000, time.Minute, 700, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = entities.Reserve(ctx, "acme", "tokens", 1000, time.Minute, 700, nil)
	fmt.Println(errors.Is(err, throttr.ErrRateLimited))
	fmt.Println(rv.Commit(ctx, 250))
	_, err = entities.Reserve(ctx, "acme", "tokens", 1000, time.Minute, 700, nil)
	fmt.Println(err)
	// Output:
	// true
	// <nil>
	// <nil>
}
