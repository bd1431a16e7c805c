package throttr_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

func TestNilArgumentsPanicInTheCaller(t *testing.T) {
	for want, call := range map[string]func(){
		"throttr: NewRateLimit: backend is nil":  func() { throttr.NewRateLimit(nil) },
		"throttr: NewRateLimit: option 1 is nil": func() { throttr.NewRateLimit(inProcess(t), nil) },
		"throttr: NewRateLimit: option 2 is nil": func() {
			throttr.NewRateLimit(inProcess(t), throttr.WithPolicy(throttr.AllowHits), nil)
		},
		"throttr: WithObserver: the observer is nil": func() { throttr.WithObserver(nil) },
	} {
		require.PanicsWithValue(t, want, call)
	}
}

// A charge counts whatever the limit says.
func TestAChargeIsNeverTooLarge(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	for _, limit := range []throttr.Limit{{Max: 10, Scale: time.Hour}, {Name: "none", Scale: time.Hour}} {
		for i := range uint64(2) {
			res := decided(t)(limiter.Charge(t.Context(), "k", limit, 12))
			require.False(t, res.Allowed)
			require.EqualValues(t, 12*(i+1), res.Count)
		}
	}
}

// Every option takes any number that is not negative. 0 is the default.
func TestOptionsAreTriedAtTheirBounds(t *testing.T) {
	options := map[string][]throttr.Option{}
	for _, n := range []int{0, 1, math.MaxInt} {
		d := time.Duration(n)
		options[fmt.Sprint("timeout ", n)] = []throttr.Option{throttr.WithTimeout(d)}
		options[fmt.Sprint("failures ", n)] = []throttr.Option{throttr.WithBreaker(n, 0)}
		options[fmt.Sprint("pause ", n)] = []throttr.Option{throttr.WithBreaker(1, d)}
		options[fmt.Sprint("processes ", n)] = []throttr.Option{throttr.WithProcesses(n)}
		options[fmt.Sprint("waiters ", n)] = []throttr.Option{throttr.WithMaxWaiters(n)}
	}
	limit := throttr.Limit{Max: 100, Scale: time.Minute, Burst: 50, Algorithm: throttr.TokenBucket}
	for name, opts := range options {
		synctest.Test(t, func(t *testing.T) {
			store := newDistant(t)
			fallback := memory.New(memory.WithClock(time.Now))
			defer fallback.Close()
			limiter := throttr.NewRateLimit(store, append(opts, throttr.WithLogger(nil), throttr.WithFallback(fallback))...)
			for i := range 10 {
				if i == 5 {
					store.be(isDown)
				}
				res, err := limiter.Take(t.Context(), "k", limit, 1)
				require.NoError(t, err, name)
				require.Equal(t, i < 5 || i == 5 || name != "processes "+strconv.Itoa(math.MaxInt), res.Allowed, "%s: take %d", name, i)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = limiter.Wait(ctx, "w", limit, 1)
				cancel()
				require.Equal(t, i < 6 || name != "processes "+strconv.Itoa(math.MaxInt), err == nil, "%s: wait %d: %v", name, i, err)
			}
			store.be(nil)
			time.Sleep(time.Hour)
		})
	}
	for text, f := range map[string]func(){
		"throttr: WithBreaker: -1 is negative":    func() { throttr.WithBreaker(-1, 0) },
		"throttr: WithBreaker: -1ns is negative":  func() { throttr.WithBreaker(0, -1) },
		"throttr: WithTimeout: -1ns is negative":  func() { throttr.WithTimeout(-1) },
		"throttr: WithProcesses: -2 is negative":  func() { throttr.WithProcesses(-2) },
		"throttr: WithMaxWaiters: -1 is negative": func() { throttr.WithMaxWaiters(-1) },
	} {
		require.PanicsWithValue(t, text, f)
	}
}
