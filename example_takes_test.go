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
	exports := throttr.Limit{Name: "exports", Max: 10, Scale: time.Minute}
	for _, n := range []uint64{8, 5, 2} {
		res, err := limiter.Take(context.Background(), "user:42", exports, n)
		fmt.Println(n, res.Allowed, res.Remaining, err)
	}
	res, err := limiter.Take(context.Background(), "user:42", exports, 11) // it can never be granted
	fmt.Println(11, res.Allowed, res.RetryAfter == throttr.Never, err)
	// Output:
	// 8 true 2 <nil>
	// 5 false 2 <nil>
	// 2 true 0 <nil>
	// 11 false true <nil>
}

// Requests that the user's limit refuses do not use up the limit that all users share.
func ExampleRateLimit_TakeAll() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	for range 4 {
		ok, results, err := limiter.TakeAll(ctx,
			throttr.Limit{Max: 2, Scale: time.Second}.For("user:42", 1),
			throttr.Limit{Max: 100, Scale: time.Minute}.For("everybody", 1))
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
	tokens := throttr.Limit{Name: "tokens", Max: 1000, Scale: time.Minute}
	rv, ok, err := limiter.Reserve(ctx, tokens.For("acme", 700))
	fmt.Println(ok, err)
	other, ok, err := limiter.Reserve(ctx, tokens.For("acme", 700))
	fmt.Println(ok, err)
	fmt.Println(other.Cancel(ctx)) // does nothing

	fmt.Println(rv.Commit(ctx, 100)) // the answer was short
	other, ok, err = limiter.Reserve(ctx, tokens.For("acme", 700))
	fmt.Println(ok, other.Results()[0].Remaining, err)
	fmt.Println(other.Cancel(ctx)) // there was no answer
	res, err := limiter.Peek(ctx, "acme", tokens, 0)
	fmt.Println(res.Count, err)
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
	// <nil>
	// true 200 <nil>
	// <nil>
	// 100 <nil>
}

// A provider allows so many requests and so many tokens of a language model. A call waits until it fits both
// limits, and commits what it has really used.
func ExampleRateLimit_WaitAll() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	requests := throttr.Limit{Name: "requests", Max: 2, Scale: 50 * time.Millisecond}
	tokens := throttr.Limit{Name: "tokens", Max: 1000, Scale: 50 * time.Millisecond}
	begun := time.Now()
	for _, used := range []uint64{100, 700, 300} {
		rv, err := limiter.WaitAll(ctx, requests.For("provider", 1), tokens.For("provider", 900)) // at most
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := rv.Commit(ctx, 1, used); err != nil {
			fmt.Println(err)
		}
		fmt.Println("used", used)
	}
	fmt.Println(time.Since(begun) >= 50*time.Millisecond)
	// Output:
	// used 100
	// used 700
	// used 300
	// true
}

// A wait that would be in vain fails at once.
func ExampleDeadlineError() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 2 {
		_, err := limiter.Wait(ctx, "report", throttr.Limit{Max: 1, Scale: time.Hour}, 1)
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
	limiter.Take(ctx, "user:42", throttr.Limit{Max: 10, Scale: time.Minute}, 8)
	for _, n := range []uint64{1, 5} {
		res, err := limiter.Peek(ctx, "user:42", throttr.Limit{Max: 10, Scale: time.Minute}, n)
		fmt.Println(n, res.Allowed, res.Remaining, err)
	}
	// Output:
	// 1 true 2 <nil>
	// 5 false 2 <nil>
}
