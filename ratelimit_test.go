package throttr_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// What is wrong in the text of a program panics in the goroutine of the caller, which can recover from it.
func TestMistakesInCodePanicInTheCaller(t *testing.T) {
	var none context.Context
	for want, call := range map[string]func(){
		"throttr: Connect: ctx is nil":           func() { throttr.Connect[uint16](none, throttr.Config{}) },
		"throttr: Open: ctx is nil":              func() { throttr.Open(none, "memory://") },
		"throttr: OpenServers: ctx is nil":       func() { throttr.OpenServers(none, throttr.Config{}) },
		"throttr: OpenServers: option 1 is nil":  func() { throttr.OpenServers(t.Context(), throttr.Config{Lazy: true}, nil) },
		"throttr: NewRateLimit: backend is nil":  func() { throttr.NewRateLimit(nil) },
		"throttr: NewRateLimit: option 1 is nil": func() { throttr.NewRateLimit(inProcess(t), nil) },
		"throttr: NewRateLimit: option 2 is nil": func() {
			throttr.NewRateLimit(inProcess(t), throttr.WithPolicy(throttr.AllowHits), nil)
		},
		"throttr: WithObserver: the observer is nil": func() { throttr.WithObserver(nil) },
		"throttr: WithBreaker: -1 is negative":       func() { throttr.WithBreaker(-1, 0) },
		"throttr: WithBreaker: -1ns is negative":     func() { throttr.WithBreaker(0, -1) },
		"throttr: WithTimeout: -1ns is negative":     func() { throttr.WithTimeout(-1) },
		"throttr: WithProcesses: -2 is negative":     func() { throttr.WithProcesses(-2) },
		"throttr: WithMaxWaiters: -1 is negative":    func() { throttr.WithMaxWaiters(-1) },

		"throttr: WithAlgorithm: algorithm 99 is no algorithm for limits with a Scale":    func() { throttr.WithAlgorithm(99) },
		"throttr: WithAlgorithm: calendar-window is no algorithm for limits with a Scale": func() { throttr.WithAlgorithm(throttr.CalendarWindow) },
	} {
		require.PanicsWithValue(t, want, call)
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
}

// A customer whose plan became unlimited, and falls back, does not find what was counted before: also with a bucket,
// whose burst is too large for the Max that Forget has in place of Unlimited, and on a server, which can't keep
// Unlimited.
func TestForgetNeedsNoMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory := throttr.NewRateLimit(inProcess(t))
		for name, c := range map[string]struct {
			limiter *throttr.RateLimit
			limit   throttr.Limit
		}{
			"memory": {inMemory, throttr.Limit{Max: 1, Scale: time.Hour}},
			"bucket": {inMemory, throttr.Limit{Max: 1_000_000, Scale: 24 * time.Hour, Burst: 100_000, Algorithm: throttr.TokenBucket}},
			"server": {testkit.Limiter[uint16](t, testkit.InMemory(t)), throttr.Limit{Max: 1000, Scale: time.Hour}},
		} {
			most := cmp.Or(c.limit.Burst, c.limit.Max)
			raised := c.limit
			raised.Max = throttr.Unlimited
			require.NoError(t, c.limiter.Check(raised), name)
			for range 2 {
				res := decided(t)(c.limiter.Take(t.Context(), "k", c.limit, most))
				require.True(t, res.Allowed, name)
				require.NoError(t, c.limiter.Forget(t.Context(), "k", raised), name)
			}
		}
	})
}

// A store that hangs holds up Forget for a while only, also if the caller's ctx has no end, and the fallback forgets.
// What the fallback could not forget is an error, as it would count in the next outage.
func TestForgetIsBoundedAndTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, fallback := newDistant(t), newDistant(t)
		limiter := throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithProcesses(2), throttr.WithLogger(nil))
		limit := throttr.Limit{Max: 4, Scale: time.Hour}
		var most uint64
		fallback.be(func(_ context.Context, c call) error { most = c.limit.Max; return nil })
		store.be(hangs)
		begun := time.Now()
		err := limiter.Forget(context.Background(), "k", limit)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.EqualValues(t, 2, most)

		store.be(nil)
		require.NoError(t, limiter.Forget(t.Context(), "k", limit))
		fallback.be(fails(errDown))
		require.ErrorIs(t, limiter.Forget(t.Context(), "k", limit), errDown)
	})
}
