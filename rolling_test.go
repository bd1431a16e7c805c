package throttr_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

var rollingAlgorithms = []throttr.Algorithm{throttr.TokenBucket, throttr.SlidingWindow, throttr.SlidingLog}

// wrapped is a backend in memory that a RateLimit calls by the interface.
type wrapped struct{ throttr.Backend }

// tenIn10s is a limit of the default algorithm.
var tenIn10s = throttr.Limit{Max: 10, Scale: 10 * time.Second}

// forEachRolling calls f in virtual time for each rolling algorithm, with a limiter that uses the
// backend in memory directly, and with one that uses the interface. It begins at a multiple of an hour.
func forEachRolling(t *testing.T, f func(t *testing.T, a throttr.Algorithm, limiter *throttr.RateLimit), opts ...throttr.Option) {
	t.Helper()
	for _, a := range rollingAlgorithms {
		for _, direct := range []bool{true, false} {
			t.Run(fmt.Sprint(a, ", direct: ", direct), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					now := time.Now()
					time.Sleep(now.Truncate(time.Hour).Add(time.Hour).Sub(now))
					m := memory.New(memory.WithClock(time.Now))
					defer m.Close()
					var b throttr.Backend = m
					if !direct {
						b = wrapped{m}
					}
					f(t, a, throttr.NewRateLimit(b, append(opts, throttr.WithAlgorithm(a))...))
				})
			})
		}
	}
}

// used returns what the limit tenIn10s has counted.
func used(t *testing.T, limiter *throttr.RateLimit, key string) uint64 {
	t.Helper()
	res, err := limiter.Peek(t.Context(), key, tenIn10s, 0)
	require.NoError(t, err)
	return res.Count
}

// A hit decides as a take, and what counts without a Max is unsupported.
func TestRollingHitsAreTakes(t *testing.T) {
	forEachRolling(t, func(t *testing.T, a throttr.Algorithm, limiter *throttr.RateLimit) {
		ctx, scale := t.Context(), 10*time.Second
		retry := map[throttr.Algorithm]time.Duration{throttr.TokenBucket: time.Second, throttr.SlidingWindow: 11250 * time.Millisecond, throttr.SlidingLog: 10 * time.Second}
		for _, n := range []uint64{8, 3, 2, 1} {
			call := limiter.HitN
			if n == 2 {
				call = limiter.Take
			}
			peeked, err := limiter.Peek(ctx, "k", tenIn10s, n)
			require.NoError(t, err)
			res, err := call(ctx, "k", tenIn10s, n)
			require.NoError(t, err)
			require.Equal(t, n == 8 || n == 2, res.Allowed)
			require.Equal(t, res.Allowed, peeked.Allowed)
			require.Equal(t, res.RetryAfter, peeked.RetryAfter)
			require.Equal(t, 10-res.Count, res.Remaining)
			if n == 3 {
				require.Equal(t, retry[a], res.RetryAfter)
			}
		}
		require.NoError(t, limiter.Reset(ctx, "k", scale))
		res, err := limiter.Charge(ctx, "k", tenIn10s, 12)
		require.NoError(t, err)
		require.False(t, res.Allowed)
		require.EqualValues(t, 12, used(t, limiter, "k"))
		_, inc := limiter.Inc(ctx, "k", scale, 3)
		_, get := limiter.Get(ctx, "k", scale)
		_, set := limiter.Set(ctx, "k", scale, 4)
		_, expires := limiter.ExpiresAt(ctx, "k", scale)
		for _, err := range []error{inc, get, set, expires} {
			require.ErrorIs(t, err, throttr.ErrUnsupported)
		}
	})
}

func TestRollingWaits(t *testing.T) {
	forEachRolling(t, func(t *testing.T, a throttr.Algorithm, limiter *throttr.RateLimit) {
		_, err := limiter.HitN(t.Context(), "k", tenIn10s, 10)
		require.NoError(t, err)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 22*time.Second)
		defer cancel()
		var all sync.WaitGroup
		var mu sync.Mutex
		var waited []time.Duration
		for i := range 10 {
			time.Sleep(time.Millisecond)
			all.Go(func() {
				_, err := limiter.Wait(ctx, "k", tenIn10s, uint64(1+i%2))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				waited = append(waited, time.Since(begun))
			})
		}
		all.Wait()
		want := map[throttr.Algorithm]int{throttr.TokenBucket: 10, throttr.SlidingWindow: 6, throttr.SlidingLog: 8}
		require.GreaterOrEqual(t, len(waited), want[a], waited)
		if a == throttr.TokenBucket {
			at := time.Duration(0)
			for i, got := range waited { // one second for each token, and the jitter
				at += time.Duration(1+i%2) * time.Second
				require.InDelta(t, at, got, float64(150*time.Millisecond), "caller %d", i)
			}
		}
	})
}

// Throttr servers keep fixed windows alone. Another algorithm is a mistake in the program, whether the
// servers are there or not: no call succeeds, no policy applies, and the error names what servers keep.
func TestAlgorithmsThatServersCannotKeepAreMistakes(t *testing.T) {
	for _, a := range []throttr.Algorithm{throttr.AlignedWindow, throttr.SlidingWindow, throttr.SlidingLog, throttr.TokenBucket} {
		for _, away := range []bool{false, true} {
			gate := &testkit.Gate{Server: testkit.InMemory(t)}
			gate.Fail.Store(away)
			client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Lazy: away, Dial: gate.Dial})
			require.NoError(t, err)
			defer client.Close()
			opened, err := throttr.OpenServers(t.Context(), throttr.Config{Lazy: away, Dial: gate.Dial})
			require.NoError(t, err)
			defer opened.Close()
			for _, b := range []throttr.Backend{client.Backend(), opened} {
				for name, opts := range map[string][]throttr.Option{
					"":         nil,
					"allow":    {throttr.WithPolicy(throttr.AllowHits)},
					"deny":     {throttr.WithPolicy(throttr.DenyHits)},
					"fallback": {throttr.WithFallback(inProcess(t))},
				} {
					t.Run(fmt.Sprintf("%v, away: %v, %T, %s", a, away, b, name), func(t *testing.T) {
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						l := throttr.NewRateLimit(b, append(opts, throttr.WithAlgorithm(a))...)
						for call, err := range everyCall(ctx, l) {
							require.ErrorIs(t, err, throttr.ErrUnsupported, call)
							require.ErrorContains(t, err, a.String(), call)
						}
						require.ErrorContains(t, l.Check(throttr.Limit{Max: 5, Scale: time.Minute}), throttr.FixedWindow.String())
					})
				}
			}
		}
	}
}

// The algorithm of a RateLimit is a constant of the program, and that of a limit is data.
func TestUnknownAlgorithms(t *testing.T) {
	unknown := throttr.Algorithm(99)
	require.PanicsWithValue(t, "throttr: WithAlgorithm: algorithm 99 is no algorithm for limits with a Scale", func() { throttr.WithAlgorithm(unknown) })
	require.Panics(t, func() { throttr.WithAlgorithm(throttr.CalendarWindow) })
	l := throttr.NewRateLimit(inProcess(t), throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(inProcess(t)))
	limit := throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: unknown}
	require.ErrorIs(t, l.Check(limit), throttr.ErrUnsupported)
	_, err := l.Take(t.Context(), "k", limit, 1)
	require.ErrorIs(t, err, throttr.ErrUnsupported)
}

// everyCall returns the errors of calls of all methods of a limiter that depend on the algorithm.
func everyCall(ctx context.Context, l *throttr.RateLimit) map[string]error {
	const key, scale = "k", time.Minute
	limit, errs := throttr.Limit{Max: 5, Scale: scale}, map[string]error{}
	errs["Check"] = l.Check(limit)
	_, errs["Hit"] = l.Hit(ctx, key, scale, 5)
	_, errs["HitN"] = l.HitN(ctx, key, limit, 2)
	_, errs["Take"] = l.Take(ctx, key, limit, 1)
	_, _, errs["TakeAll"] = l.TakeAll(ctx, limit.For(key, 1), limit.For("l", 1))
	_, errs["Peek"] = l.Peek(ctx, key, limit, 1)
	_, _, errs["Reserve"] = l.Reserve(ctx, limit.For(key, 1))
	_, errs["Wait"] = l.Wait(ctx, key, limit, 1)
	_, errs["Charge"] = l.Charge(ctx, key, limit, 1)
	_, errs["Inc"] = l.Inc(ctx, key, scale, 1)
	_, errs["Get"] = l.Get(ctx, key, scale)
	_, errs["Set"] = l.Set(ctx, key, scale, 1)
	_, errs["ExpiresAt"] = l.ExpiresAt(ctx, key, scale)
	errs["Reset"] = l.Reset(ctx, key, scale)
	errs["Forget"] = l.Forget(ctx, key, limit)
	return errs
}
