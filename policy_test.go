package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

// errAway is how an away backend fails.
var errAway = errors.New("away")

// away is a backend that fails each hit and Reset with err, after a wait if there is one.
type away struct {
	throttr.Backend
	err   error
	wait  time.Duration // with 0, not at all
	asked *atomic.Int64
}

func newAway(err error) away { return away{err: err, asked: new(atomic.Int64)} }

func (a away) fail(ctx context.Context) error {
	a.asked.Add(1)
	if a.wait == 0 {
		return a.err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("away: %w", ctx.Err())
	case <-time.After(a.wait):
		return a.err
	}
}

func (a away) Hit(ctx context.Context, _ string, _ time.Duration, _, _ uint64) (throttr.Window, error) {
	return throttr.Window{}, a.fail(ctx)
}

func (a away) Get(ctx context.Context, _ string, _ time.Duration) (throttr.Window, error) {
	return throttr.Window{}, a.fail(ctx)
}

func (a away) Reset(ctx context.Context, _ string, _ time.Duration) error { return a.fail(ctx) }

// inProcess returns a backend of package memory that ends with the test.
func inProcess(t testing.TB, opts ...memory.Option) *memory.Backend {
	b := memory.New(opts...)
	t.Cleanup(func() { b.Close() })
	return b
}

func TestWithoutAPolicyAHitReturnsItsBackendsError(t *testing.T) {
	for name, opts := range map[string][]throttr.Option{
		"default":     nil,
		"ReturnError": {throttr.WithPolicy(throttr.ReturnError)},
		"last counts": {throttr.WithPolicy(throttr.AllowHits), throttr.WithPolicy(throttr.ReturnError)},
		"no fallback": {throttr.WithFallback(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := throttr.NewRateLimit(newAway(errAway), opts...).Hit(t.Context(), "k", time.Minute, 10)
			require.Equal(t, errAway, err, "as it is")
			require.Zero(t, res)
		})
	}
}

func TestAllowHitsAllowsWhatTheBackendDoesNotAnswer(t *testing.T) {
	limiter := throttr.NewRateLimit(newAway(errAway), throttr.WithPolicy(throttr.AllowHits))
	for range 20 {
		res, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.NoError(t, err)
		require.Equal(t, throttr.Result{Allowed: true, Limit: 10, Degraded: true}, res)
	}
}

func TestAllowHitsDeniesWhatNoWindowWouldAllow(t *testing.T) {
	limiter := throttr.NewRateLimit(newAway(errAway), throttr.WithPolicy(throttr.AllowHits))
	for _, c := range []struct {
		limit, increment uint64
		allowed          bool
	}{
		{0, 1, false}, {10, 11, false}, {0, 0, true}, {10, 10, true}, {10, 0, true},
	} {
		res, err := limiter.HitN(t.Context(), "blocked", time.Minute, c.limit, c.increment)
		require.NoError(t, err)
		require.Equal(t, c.allowed, res.Allowed, "a hit of %d, limit %d", c.increment, c.limit)
		require.True(t, res.Degraded)
		require.Equal(t, !c.allowed, res.RetryAfter > 0, "only who is denied is to come again")
	}
}

func TestDenyHitsDeniesForASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := throttr.NewRateLimit(newAway(errAway), throttr.WithPolicy(throttr.DenyHits))
		for scale, wait := range map[time.Duration]time.Duration{
			time.Millisecond: time.Millisecond,
			time.Second:      time.Second,
			time.Hour:        time.Second,
		} {
			res, err := limiter.Hit(t.Context(), "k", scale, 10)
			require.NoError(t, err)
			require.Equal(t, throttr.Result{Limit: 10, RetryAfter: wait, ResetAt: time.Now().Add(wait), Degraded: true}, res)
		}
	})
}

func TestAFallbackCountsWhatTheBackendDoesNotAnswer(t *testing.T) {
	backend := newAway(errAway)
	fallback := inProcess(t)
	// The policy does not matter while the fallback answers.
	limiter := throttr.NewRateLimit(backend, throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
	for i := uint64(1); i <= 4; i++ {
		res, err := limiter.HitN(t.Context(), "k", time.Hour, 5, 2)
		require.NoError(t, err)
		require.True(t, res.Degraded)
		require.Equal(t, 2*i, res.Count)
		require.Equal(t, uint64(5), res.Limit)
		require.Equal(t, 2*i <= 5, res.Allowed)
		if res.Allowed {
			require.Equal(t, 5-2*i, res.Remaining)
			require.Zero(t, res.RetryAfter)
		} else {
			require.InDelta(t, time.Hour, res.RetryAfter, float64(time.Minute))
		}
	}
	require.EqualValues(t, 4, backend.asked.Load(), "the backend is asked first, each time")
	w, err := fallback.Get(t.Context(), "k", time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 8, w.Count)
}

func TestWhatTheBackendAnswersIsNotDegraded(t *testing.T) {
	fallback := newAway(errAway)
	limiter := throttr.NewRateLimit(inProcess(t), throttr.WithFallback(fallback),
		throttr.WithPolicy(throttr.DenyHits), throttr.WithTimeout(time.Hour))
	for i := range 3 {
		res, err := limiter.Hit(t.Context(), "k", time.Hour, 2)
		require.NoError(t, err)
		require.Equal(t, i < 2, res.Allowed)
		require.False(t, res.Degraded)
	}
	require.Zero(t, fallback.asked.Load())
}

func TestWhenTheFallbackFailsTooThePolicyDecides(t *testing.T) {
	errFull := errors.New("full")
	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		t.Run(p.String(), func(t *testing.T) {
			limiter := throttr.NewRateLimit(newAway(errAway), throttr.WithFallback(newAway(errFull)), throttr.WithPolicy(p))
			res, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
			if p == throttr.ReturnError {
				require.ErrorIs(t, err, errAway)
				require.ErrorIs(t, err, errFull)
				require.EqualError(t, err, "away; and the fallback: full")
				require.Zero(t, res)
				return
			}
			require.NoError(t, err)
			require.True(t, res.Degraded)
			require.Equal(t, p == throttr.AllowHits, res.Allowed)
		})
	}
}

// policies are all that can make a decision of a failure.
func policies(t *testing.T) map[string][]throttr.Option {
	return map[string][]throttr.Option{
		"allow":    {throttr.WithPolicy(throttr.AllowHits)},
		"deny":     {throttr.WithPolicy(throttr.DenyHits)},
		"fallback": {throttr.WithFallback(inProcess(t))},
		"all":      {throttr.WithFallback(inProcess(t)), throttr.WithPolicy(throttr.AllowHits), throttr.WithTimeout(time.Minute)},
	}
}

func TestNoPolicyCoversAHitThatIsAtFaultItself(t *testing.T) {
	for name, opts := range policies(t) {
		for _, fault := range []error{
			throttr.ErrScale,
			&throttr.RangeError{Field: "limit"},
			&throttr.RequestError{Err: throttr.ErrClosed},
		} {
			t.Run(fmt.Sprintf("%s/%T", name, fault), func(t *testing.T) {
				res, err := throttr.NewRateLimit(newAway(fault), opts...).Hit(t.Context(), "k", time.Minute, 10)
				require.Equal(t, fault, err)
				require.Zero(t, res)
			})
		}
		t.Run(name+"/scale", func(t *testing.T) {
			backend := newAway(errAway)
			_, err := throttr.NewRateLimit(backend, opts...).Hit(t.Context(), "k", 0, 10)
			require.ErrorIs(t, err, throttr.ErrScale)
			require.Zero(t, backend.asked.Load())
		})
	}
}

func TestNoPolicyCoversTheFallbacksFault(t *testing.T) {
	limiter := throttr.NewRateLimit(newAway(errAway), throttr.WithPolicy(throttr.AllowHits),
		throttr.WithFallback(newAway(&throttr.RangeError{Field: "limit"})))
	_, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
	require.ErrorIs(t, err, errAway)
	require.ErrorIs(t, err, throttr.ErrRange)
}

func TestNoPolicyCoversACallerWhoHasLeft(t *testing.T) {
	for name, opts := range policies(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := throttr.NewRateLimit(newAway(ctx.Err()), opts...).Hit(ctx, "k", time.Minute, 10)
			require.ErrorIs(t, err, context.Canceled)

			_, err = throttr.NewRateLimit(newAway(errAway), opts...).Hit(ctx, "k", time.Minute, 10)
			require.ErrorIs(t, err, errAway, "though it fails for another reason")
		})
		t.Run(name+"/deadline", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				backend := newAway(errAway)
				backend.wait = time.Hour
				begun := time.Now()
				// Options of this bubble, as package memory has a goroutine.
				limiter := throttr.NewRateLimit(backend, throttr.WithPolicy(throttr.AllowHits), throttr.WithTimeout(time.Second))
				_, err := limiter.Hit(ctx, "k", time.Minute, 10)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 50*time.Millisecond, time.Since(begun))
			})
		})
	}
}

// lateContext is a context whose deadline has passed, which does not tell yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }
func (lateContext) Err() error                  { return nil }

func TestNoPolicyCoversADeadlineThatTheBackendSawFirst(t *testing.T) {
	limiter := throttr.NewRateLimit(newAway(context.DeadlineExceeded), throttr.WithPolicy(throttr.AllowHits))
	_, err := limiter.Hit(lateContext{t.Context()}, "k", time.Minute, 10)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestACallerWhoLeavesDuringTheFallbackIsNotCovered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fallback := leaving{newAway(errAway), cancel}
	limiter := throttr.NewRateLimit(newAway(errAway), throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
	_, err := limiter.Hit(ctx, "k", time.Minute, 10)
	require.ErrorIs(t, err, context.Canceled)
}

// leaving is a backend whose caller leaves while it is asked.
type leaving struct {
	away
	leave context.CancelFunc
}

func (l leaving) Hit(ctx context.Context, _ string, _ time.Duration, _, _ uint64) (throttr.Window, error) {
	l.leave()
	return throttr.Window{}, ctx.Err()
}

func TestATimeoutBoundsTheWaitForABackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newAway(errAway)
		backend.wait = time.Hour
		begun := time.Now()

		limiter := throttr.NewRateLimit(backend, throttr.WithTimeout(20*time.Millisecond))
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.Equal(t, 20*time.Millisecond, time.Since(begun))
		require.EqualError(t, err, "throttr: no answer from the backend for 20ms: away: context deadline exceeded")
		require.True(t, throttr.Timeout(err))

		limiter = throttr.NewRateLimit(backend, throttr.WithTimeout(20*time.Millisecond), throttr.WithPolicy(throttr.AllowHits))
		begun = time.Now()
		res, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.NoError(t, err, "it is not the caller's deadline")
		require.True(t, res.Allowed && res.Degraded)
		require.Equal(t, 20*time.Millisecond, time.Since(begun))

		limiter = throttr.NewRateLimit(backend, throttr.WithTimeout(20*time.Millisecond),
			throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(backend))
		begun = time.Now()
		res, err = limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.NoError(t, err)
		require.True(t, res.Allowed && res.Degraded)
		require.Equal(t, 40*time.Millisecond, time.Since(begun), "the fallback is waited for as long")
	})
}

func TestNoTimeoutIsNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newAway(errAway)
		backend.wait = 24 * time.Hour
		begun := time.Now()
		_, err := throttr.NewRateLimit(backend, throttr.WithTimeout(0)).Hit(t.Context(), "k", time.Minute, 10)
		require.Equal(t, errAway, err)
		require.Equal(t, backend.wait, time.Since(begun))
	})
}

func TestAnErrorWithinTheTimeoutIsLeftAsItIs(t *testing.T) {
	_, err := throttr.NewRateLimit(newAway(errAway), throttr.WithTimeout(time.Hour)).Hit(t.Context(), "k", time.Minute, 10)
	require.Equal(t, errAway, err)
}

func TestPoliciesAreForHitsAlone(t *testing.T) {
	for name, opts := range policies(t) {
		t.Run(name, func(t *testing.T) {
			limiter := throttr.NewRateLimit(newAway(errAway), opts...)
			_, err := limiter.Get(t.Context(), "k", time.Minute)
			require.ErrorIs(t, err, errAway)
			require.ErrorIs(t, limiter.Reset(t.Context(), "k", time.Minute), errAway)
		})
	}
}

func TestPolicyNames(t *testing.T) {
	for p, want := range map[throttr.Policy]string{
		throttr.ReturnError: "return an error",
		throttr.AllowHits:   "allow hits",
		throttr.DenyHits:    "deny hits",
		throttr.Policy(9):   "unknown policy",
	} {
		require.Equal(t, want, p.String())
	}
}

func TestNoPolicyCoversAStoreThatWasClosed(t *testing.T) {
	b := memory.New()
	b.Close()
	limiter := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits))
	_, err := limiter.Hit(t.Context(), "k", time.Minute, 5)
	require.ErrorIs(t, err, memory.ErrClosed)
	_, err = memory.New().Get(t.Context(), "k", 0)
	require.ErrorIs(t, err, throttr.ErrScale)
}
