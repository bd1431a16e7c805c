package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var rollingAlgorithms = []window.Algorithm{window.TokenBucket, window.Sliding, window.SlidingLog}

// hidden hides what a backend in memory can do besides the interfaces.
type hidden struct {
	window.Backend
	window.Taker
}

// forEachRolling calls f in virtual time for each rolling algorithm, with a limiter that uses the
// backend in memory directly, and with one that uses its interfaces. It begins at a multiple of an hour.
func forEachRolling(t *testing.T, f func(t *testing.T, a window.Algorithm, limiter *throttr.RateLimit), opts ...throttr.Option) {
	t.Helper()
	for _, a := range rollingAlgorithms {
		for _, direct := range []bool{true, false} {
			name := a.String()
			if !direct {
				name += " by its interfaces"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					now := time.Now()
					time.Sleep(now.Truncate(time.Hour).Add(time.Hour).Sub(now))
					m := memory.New(memory.WithClock(time.Now), memory.WithAlgorithm(a))
					defer m.Close()
					var b throttr.Backend = m
					if !direct {
						b = struct {
							hidden
							window.Peeker
							window.Teller
						}{hidden{m, m}, m, m}
					}
					f(t, a, throttr.NewRateLimit(b, opts...))
				})
			})
		}
	}
}

//evidence:limits A hit that is refused by a token bucket, a sliding window or a sliding log costs nothing
func TestRollingHits(t *testing.T) {
	forEachRolling(t, func(t *testing.T, a window.Algorithm, limiter *throttr.RateLimit) {
		ctx, scale := t.Context(), 10*time.Second
		res, err := limiter.HitN(ctx, "k", scale, 10, 8)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.EqualValues(t, 8, res.Count)
		require.EqualValues(t, 2, res.Remaining)
		require.Zero(t, res.RetryAfter)
		full := map[window.Algorithm]time.Duration{window.TokenBucket: 8 * time.Second, window.Sliding: 20 * time.Second, window.SlidingLog: 10 * time.Second}
		require.True(t, res.ResetAt.Equal(time.Now().Add(full[a])), res.ResetAt)
		for range 5 {
			res, err = limiter.HitN(ctx, "k", scale, 10, 3)
			require.NoError(t, err)
			require.False(t, res.Allowed)
			require.EqualValues(t, 8, res.Count)
			require.EqualValues(t, 2, res.Remaining)
		}
		retry := map[window.Algorithm]time.Duration{window.TokenBucket: time.Second, window.Sliding: 11250 * time.Millisecond, window.SlidingLog: 10 * time.Second}
		require.Equal(t, retry[a], res.RetryAfter)
		n, err := limiter.Get(ctx, "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, 8, n)
		time.Sleep(res.RetryAfter)
		res, err = limiter.HitN(ctx, "k", scale, 10, 3)
		require.NoError(t, err)
		require.True(t, res.Allowed, res)
		res, err = limiter.HitN(ctx, "k", scale, 10, 11)
		require.NoError(t, err)
		require.False(t, res.Allowed, "more than the limit")
		res, err = limiter.Hit(ctx, "none", scale, 0)
		require.NoError(t, err)
		require.False(t, res.Allowed, "a limit of 0")
		require.Equal(t, scale, res.RetryAfter)

		count, err := limiter.Set(ctx, "k", scale, 4)
		require.NoError(t, err)
		require.EqualValues(t, 4, count)
		res, err = limiter.HitN(ctx, "k", scale, 10, 7)
		require.NoError(t, err)
		require.False(t, res.Allowed)
		count, err = limiter.Inc(ctx, "k", scale, 3)
		require.NoError(t, err)
		require.EqualValues(t, 7, count)
		require.NoError(t, limiter.Reset(ctx, "k", scale))
		at, err := limiter.ExpiresAt(ctx, "k", scale)
		require.NoError(t, err)
		require.Zero(t, at)
	})
}

func TestRollingPeekAndTakes(t *testing.T) {
	forEachRolling(t, func(t *testing.T, _ window.Algorithm, limiter *throttr.RateLimit) {
		ctx, scale := t.Context(), 10*time.Second
		for _, n := range []uint64{8, 3, 2, 1} {
			peeked, err := limiter.Peek(ctx, "k", scale, 10, n)
			require.NoError(t, err)
			res, err := limiter.Take(ctx, "k", scale, 10, n)
			require.NoError(t, err)
			require.Equal(t, n != 3 && n != 1, res.Allowed)
			require.Equal(t, res.Allowed, peeked.Allowed)
			require.Equal(t, res.RetryAfter, peeked.RetryAfter)
			require.Equal(t, 10-res.Count, res.Remaining)
		}
		time.Sleep(time.Second)
		ok, results, err := limiter.TakeAll(ctx, throttr.Limit{Key: "k", Scale: scale, Limit: 10, N: 3}, throttr.Limit{Key: "other", Scale: scale, Limit: 10, N: 3})
		require.NoError(t, err)
		require.False(t, ok)
		require.False(t, results[0].Allowed)
		require.Positive(t, results[0].RetryAfter)
		require.True(t, results[1].Allowed)
		require.Zero(t, results[1].RetryAfter)
		time.Sleep(results[0].RetryAfter - time.Nanosecond)
		peeked, err := limiter.Peek(ctx, "k", scale, 10, 3)
		require.NoError(t, err)
		require.False(t, peeked.Allowed)
		time.Sleep(time.Nanosecond)
		ok, _, err = limiter.TakeAll(ctx, throttr.Limit{Key: "k", Scale: scale, Limit: 10, N: 3}, throttr.Limit{Key: "other", Scale: scale, Limit: 10, N: 3})
		require.NoError(t, err)
		require.True(t, ok)
		var cost *throttr.CostError
		_, err = limiter.Take(ctx, "k", scale, 10, 11)
		require.ErrorAs(t, err, &cost)
	})
}

func TestRollingReservationsGiveBack(t *testing.T) {
	forEachRolling(t, func(t *testing.T, a window.Algorithm, limiter *throttr.RateLimit) {
		ctx, scale := t.Context(), 10*time.Second
		limit := throttr.Limit{Key: "k", Scale: scale, Limit: 10, N: 8}
		count := func() uint64 {
			n, err := limiter.Get(ctx, "k", scale)
			require.NoError(t, err)
			return n
		}
		rv, err := limiter.Reserve(ctx, limit)
		require.NoError(t, err)
		require.True(t, rv.OK())
		require.NoError(t, rv.Commit(ctx, 3))
		require.EqualValues(t, 3, count())
		rv, err = limiter.Reserve(ctx, limit)
		require.NoError(t, err)
		require.False(t, rv.OK())
		limit.N = 7
		rv, err = limiter.Reserve(ctx, limit)
		require.NoError(t, err)
		require.NoError(t, rv.Commit(ctx, 9)) // more than was reserved
		require.EqualValues(t, 12, count())
		res, err := limiter.Hit(ctx, "k", scale, 10)
		require.NoError(t, err)
		require.False(t, res.Allowed)
		require.Zero(t, res.Remaining)
		if a == window.TokenBucket { // what has come back by itself is not given back
			require.NoError(t, limiter.Reset(ctx, "k", scale))
			rv, err = limiter.Reserve(ctx, limit)
			require.NoError(t, err)
			time.Sleep(4 * time.Second)
			_, err := limiter.HitN(ctx, "k", scale, 10, 2)
			require.NoError(t, err)
			require.NoError(t, rv.Cancel(ctx))
			require.EqualValues(t, 2, count())
		}
	})
}

// Callers that wait are served one by one, at the rate of the limit, and nobody fails who need not.
//
//evidence:limits Callers wait for tokens at the rate of the limit
func TestRollingWaits(t *testing.T) {
	forEachRolling(t, func(t *testing.T, a window.Algorithm, limiter *throttr.RateLimit) {
		scale := 10 * time.Second
		_, err := limiter.HitN(t.Context(), "k", scale, 10, 10)
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
				_, err := limiter.Wait(ctx, "k", scale, 10, uint64(1+i%2))
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
		want := map[window.Algorithm]int{window.TokenBucket: 10, window.Sliding: 6, window.SlidingLog: 8}
		require.GreaterOrEqual(t, len(waited), want[a], waited)
		if a == window.TokenBucket {
			at := time.Duration(0)
			for i, got := range waited { // one second for each token, and the jitter
				at += time.Duration(1+i%2) * time.Second
				require.InDelta(t, at, got, float64(150*time.Millisecond), "caller %d", i)
			}
		}
	})
}

// A wait that can't end in time fails at once.
func TestRollingWaitThatWouldBeTooLongFails(t *testing.T) {
	forEachRolling(t, func(t *testing.T, _ window.Algorithm, limiter *throttr.RateLimit) {
		scale := 10 * time.Second
		_, err := limiter.HitN(t.Context(), "k", scale, 10, 10)
		require.NoError(t, err)
		peeked, err := limiter.Peek(t.Context(), "k", scale, 10, 5)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), peeked.RetryAfter-time.Second)
		defer cancel()
		begun := time.Now()
		_, err = limiter.Wait(ctx, "k", scale, 10, 5)
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.True(t, late.At.Equal(begun.Add(peeked.RetryAfter)))
		require.Zero(t, time.Since(begun))
	})
}

func TestRollingEntities(t *testing.T) {
	forEachRolling(t, func(t *testing.T, _ window.Algorithm, limiter *throttr.RateLimit) {
		entities, ctx, scale := throttr.NewEntities(limiter), t.Context(), 10*time.Second
		check := func() error { return entities.Check(ctx, "user:42", "upload", 3, scale, nil) }
		for range 3 {
			require.NoError(t, check())
		}
		var denied *throttr.RateLimitError
		require.ErrorAs(t, check(), &denied)
		require.EqualValues(t, 3, denied.Count)
		status, err := entities.Status(ctx, "user:42", "upload", 3, scale)
		require.NoError(t, err)
		require.False(t, status.Allowed)
		require.Equal(t, denied.RetryAfter, status.RetryAfter)
		time.Sleep(denied.RetryAfter)
		status, err = entities.Status(ctx, "user:42", "upload", 3, scale)
		require.NoError(t, err)
		require.True(t, status.Allowed)
		require.NoError(t, check())
		require.NoError(t, entities.Reset(ctx, "user:42", "upload", scale))
		require.NoError(t, check())
		rv, err := entities.Reserve(ctx, "user:42", "upload", 3, scale, 2, nil)
		require.NoError(t, err)
		_, err = entities.Reserve(ctx, "user:42", "upload", 3, scale, 2, nil)
		require.ErrorIs(t, err, throttr.ErrRateLimited)
		require.NoError(t, rv.Cancel(ctx))
		require.NoError(t, entities.Wait(ctx, "user:42", "upload", 3, scale, 2, nil))
	})
}

func TestObserversSeeRollingDecisions(t *testing.T) {
	var seen recorder
	forEachRolling(t, func(t *testing.T, _ window.Algorithm, limiter *throttr.RateLimit) {
		for _, take := range []bool{false, true} {
			for i, kind := range []throttr.EventKind{throttr.EventAllowed, throttr.EventDenied} {
				var res throttr.Result
				var err error
				if take {
					res, err = limiter.Take(t.Context(), "take", time.Minute, 5, 3)
				} else {
					res, err = limiter.HitN(t.Context(), "hit", time.Minute, 5, 3)
				}
				require.NoError(t, err)
				require.Equal(t, i == 0, res.Allowed)
				e := seen.last(t)
				require.Equal(t, kind, e.Kind)
				require.Equal(t, res, e.Result)
				require.EqualValues(t, 3, e.Result.Count)
				require.Equal(t, take, e.Take)
			}
		}
	}, throttr.WithObserver(&seen))
}

// A fallback decides by its own algorithm. What a backend can't do is no failure of it.
func TestPoliciesOfRollingAlgorithms(t *testing.T) {
	broken := errors.New("broken")
	forEachRolling(t, func(t *testing.T, a window.Algorithm, _ *throttr.RateLimit) {
		fallback := memory.New(memory.WithClock(time.Now), memory.WithAlgorithm(a))
		defer fallback.Close()
		limiter := throttr.NewRateLimit(hitFails{err: broken}, throttr.WithFallback(fallback))
		res, err := limiter.HitN(t.Context(), "k", time.Minute, 5, 3)
		require.NoError(t, err)
		require.True(t, res.Allowed && res.Degraded)
		res, err = limiter.HitN(t.Context(), "k", time.Minute, 5, 3)
		require.NoError(t, err)
		require.False(t, res.Allowed)
		require.True(t, res.Degraded)
		require.EqualValues(t, 3, res.Count)
		require.EqualValues(t, 2, res.Remaining)
		require.Positive(t, res.RetryAfter)
	})
	for _, policy := range []throttr.Policy{throttr.AllowHits, throttr.DenyHits} {
		limiter := throttr.NewRateLimit(hitFails{err: errors.ErrUnsupported}, throttr.WithPolicy(policy))
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 5)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// hitFails is a backend whose hits fail.
type hitFails struct {
	throttr.Backend
	err error
}

func (f hitFails) Hit(context.Context, string, time.Duration, uint64, uint64) (throttr.Window, error) {
	return throttr.Window{}, f.err
}

// A backend that is opened in memory knows its algorithm.
func TestOpenedBackendsHaveRollingAlgorithms(t *testing.T) {
	for _, a := range rollingAlgorithms {
		b, err := throttr.Open(t.Context(), "memory://", throttr.WithAlgorithm(a))
		require.NoError(t, err)
		defer b.Close()
		require.Equal(t, a, window.AlgorithmOf(b))
		limiter := throttr.NewRateLimit(b)
		for i := range 2 {
			res, err := limiter.HitN(t.Context(), "k", time.Hour, 5, 3)
			require.NoError(t, err)
			require.Equal(t, i == 0, res.Allowed)
			require.EqualValues(t, 3, res.Count)
		}
		w, err := b.Peek(t.Context(), "k", time.Hour, 5, 3)
		require.NoError(t, err)
		require.True(t, w.Refused)
	}
}

// Throttr servers can't keep token buckets and sliding logs. That is a mistake in the program, whether the
// servers are there or not: no call succeeds, no policy applies, and the error names what servers keep.
//
//evidence:limits Algorithms that servers can't keep are errors of Check and of every call, and name those that they keep
func TestAlgorithmsThatServersCannotKeepAreMistakes(t *testing.T) {
	for _, a := range []window.Algorithm{window.TokenBucket, window.SlidingLog} {
		for _, away := range []bool{false, true} {
			gate := &testkit.Gate{Server: testkit.InMemory(t)}
			gate.Fail.Store(away)
			_, err := throttr.OpenConfig(t.Context(), throttr.Config{LazyConnect: away, Dial: gate.Dial}, throttr.WithAlgorithm(a))
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorIs(t, err, throttr.ErrConfig)
			require.ErrorContains(t, err, a.String())
			require.Zero(t, gate.Server.Conns())
			client, err := throttr.Connect[uint16](t.Context(), throttr.Config{LazyConnect: away, Dial: gate.Dial})
			require.NoError(t, err)
			defer client.Close()
			fallback := memory.New(memory.WithAlgorithm(a))
			defer fallback.Close()
			for name, opts := range map[string][]throttr.Option{
				"":         nil,
				"allow":    {throttr.WithPolicy(throttr.AllowHits)},
				"deny":     {throttr.WithPolicy(throttr.DenyHits)},
				"fallback": {throttr.WithFallback(fallback)},
			} {
				t.Run(fmt.Sprint(a, ", away: ", away, ", ", name), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					b := client.Backend(throttr.WithAlgorithm(a))
					for call, err := range everyCall(ctx, throttr.NewRateLimit(b, opts...)) {
						require.ErrorIs(t, err, errors.ErrUnsupported, call)
						for _, named := range []window.Algorithm{a, window.PerKey, window.Aligned, window.Sliding} {
							require.ErrorContains(t, err, named.String(), call)
						}
					}
				})
			}
		}
	}
}

// An algorithm is a constant of the program.
func TestUnknownAlgorithmsPanic(t *testing.T) {
	unknown := window.SlidingLog + 1
	require.PanicsWithValue(t, "throttr: WithAlgorithm: there is no algorithm 5", func() { throttr.WithAlgorithm(unknown) })
	require.PanicsWithValue(t, "memory: WithAlgorithm: there is no algorithm 5", func() { memory.WithAlgorithm(unknown) })
	require.Equal(t, "unknown algorithm", unknown.String(), "it is the first one")
}

// everyCall returns the errors of calls of all methods of a limiter.
func everyCall(ctx context.Context, l *throttr.RateLimit) map[string]error {
	const key, scale = "k", time.Minute
	limit, errs, entities := throttr.Limit{Key: key, Scale: scale, Limit: 5, N: 1}, map[string]error{}, throttr.NewEntities(l)
	errs["Check"] = l.Check(scale, 5)
	_, errs["Hit"] = l.Hit(ctx, key, scale, 5)
	_, errs["HitN"] = l.HitN(ctx, key, scale, 5, 2)
	_, errs["Take"] = l.Take(ctx, key, scale, 5, 1)
	_, errs["Take of 0"] = l.Take(ctx, key, scale, 5, 0)
	_, _, errs["TakeAll"] = l.TakeAll(ctx, limit, throttr.Limit{Key: "l", Scale: scale, Limit: 5, N: 1})
	_, errs["Peek"] = l.Peek(ctx, key, scale, 5, 1)
	_, errs["Reserve"] = l.Reserve(ctx, limit)
	_, errs["Wait"] = l.Wait(ctx, key, scale, 5, 1)
	_, errs["Inc"] = l.Inc(ctx, key, scale, 1)
	_, errs["Get"] = l.Get(ctx, key, scale)
	_, errs["Set"] = l.Set(ctx, key, scale, 1)
	_, errs["Window"] = l.Window(ctx, key, scale)
	_, errs["ExpiresAt"] = l.ExpiresAt(ctx, key, scale)
	errs["Reset"] = l.Reset(ctx, key, scale)
	_, errs["Delete"] = l.Delete(ctx, key, scale)
	_, errs["Delete of all scales"] = l.Delete(ctx, key)
	errs["Entities.Check"] = entities.Check(ctx, "user:42", "upload", 5, scale, nil)
	_, errs["Entities.Status"] = entities.Status(ctx, "user:42", "upload", 5, scale)
	_, errs["Entities.Reserve"] = entities.Reserve(ctx, "user:42", "upload", 5, scale, 1, nil)
	errs["Entities.Wait"] = entities.Wait(ctx, "user:42", "upload", 5, scale, 1, nil)
	errs["Entities.Reset"] = entities.Reset(ctx, "user:42", "upload", scale)
	return errs
}
