package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var perMinute = window.Limit{Max: 10, Scale: time.Minute, Algorithm: window.FixedWindow}

// A Backend counts hits. throttr.NewRateLimit returns a RateLimit that decides on them.
func Example() {
	backend := memory.New()
	defer backend.Close()
	ctx := context.Background()

	const limit = 2
	for range 3 {
		w, err := backend.Hit(ctx, "user:42", window.Limit{Max: limit, Scale: time.Minute, Algorithm: window.FixedWindow}, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(w.Count, w.Count <= limit)
	}
	// Output:
	// 1 true
	// 2 true
	// 3 false
}

// The clock of a test advances only when the test advances it.
func ExampleWithClock() {
	clock := backendtest.NewClock()
	backend := memory.New(memory.WithClock(clock.Now))
	defer backend.Close()
	ctx := context.Background()

	print := func(w window.Window, _ error) { fmt.Println(w.Count, w.Left) }
	print(backend.Hit(ctx, "user:42", perMinute, 1))
	clock.Advance(20 * time.Second)
	print(backend.Hit(ctx, "user:42", perMinute, 1))
	clock.Advance(40 * time.Second)
	print(backend.Hit(ctx, "user:42", perMinute, 1))
	// Output:
	// 1 1m0s
	// 2 40s
	// 1 1m0s
}

// Keys that have a window keep it, and new ones are refused.
func ExampleWithMaxKeys() {
	backend := memory.New(memory.WithMaxKeys(2))
	defer backend.Close()

	for _, key := range []string{"a", "b", "c", "a"} {
		w, err := backend.Hit(context.Background(), key, perMinute, 1)
		fmt.Println(key, w.Count, w.Refused, w.RetryAfter, err)
	}
	// Output:
	// a 1 false 0s <nil>
	// b 1 false 0s <nil>
	// c 10 true 1m0s <nil>
	// a 2 false 0s <nil>
}

func ExampleWithBeforeDrop() {
	clock := backendtest.NewClock()
	backend := memory.New(memory.WithClock(clock.Now), memory.WithBeforeDrop(func(dropped []window.Listed) {
		for _, d := range dropped {
			fmt.Printf("%s: %d hits in %v\n", d.Key, d.Window.Count, d.Limit.Scale)
		}
	}))
	defer backend.Close()

	_, _ = backend.Charge(context.Background(), "user:42", perMinute, 7)
	clock.Advance(time.Minute)
	fmt.Println(backend.Clean()) // the backend does this every CleanPeriod
	// Output:
	// user:42: 7 hits in 1m0s
	// 1
}
