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
	"github.com/throttr-go/throttr/window"
)

// errDown is the error of a failing backend.
var errDown = errors.New("down")

// failing is a backend whose Hit, Peek and Reset return err, after a wait.
type failing struct {
	window.Unimplemented
	err   error
	wait  time.Duration
	calls *atomic.Int64
}

func newFailing(err error) failing { return failing{err: err, calls: new(atomic.Int64)} }

func (b failing) fail(ctx context.Context, l throttr.Limit) error {
	b.calls.Add(1)
	if l.Shadow {
		return errors.New("a backend got a Shadow limit")
	}
	if b.wait == 0 {
		return b.err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("down: %w", ctx.Err())
	case <-time.After(b.wait):
		return b.err
	}
}

func (b failing) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func (b failing) Take(ctx context.Context, _ string, l throttr.Limit, _ uint64) (window.Window, error) {
	return window.Window{}, b.fail(ctx, l)
}

func (b failing) Hit(ctx context.Context, _ string, l throttr.Limit, _ uint64) (window.Window, error) {
	return window.Window{}, b.fail(ctx, l)
}

func (b failing) Peek(ctx context.Context, _ string, l throttr.Limit, _ uint64) (window.Window, error) {
	return window.Window{}, b.fail(ctx, l)
}

func (b failing) Reset(ctx context.Context, _ string, l throttr.Limit) error { return b.fail(ctx, l) }

// inProcess returns a backend of package memory that is closed at the end of the test.
func inProcess(t testing.TB, opts ...memory.Option) *memory.Backend {
	b := memory.New(opts...)
	t.Cleanup(func() { b.Close() })
	return b
}

func TestDefaultPolicyReturnsTheErrorOfTheBackend(t *testing.T) {
	for name, opts := range map[string][]throttr.Option{
		"default":       nil,
		"ReturnError":   {throttr.WithPolicy(throttr.ReturnError)},
		"last one wins": {throttr.WithPolicy(throttr.AllowHits), throttr.WithPolicy(throttr.ReturnError)},
		"no fallback":   {throttr.WithFallback(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := throttr.NewRateLimit(newFailing(errDown), opts...).Hit(t.Context(), "k", time.Minute, 10)
			require.Equal(t, errDown, err, "it is not wrapped")
			require.Zero(t, res)
		})
	}
}

func TestAllowHitsAllowsHitsIfTheBackendFails(t *testing.T) {
	limiter := throttr.NewRateLimit(newFailing(errDown), throttr.WithPolicy(throttr.AllowHits))
	for range 20 {
		res, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.NoError(t, err)
		require.Equal(t, throttr.Result{Allowed: true, Limit: 10, Degraded: true}, res)
	}
}

func TestAllowHitsDeniesHitsThatNoWindowWouldAllow(t *testing.T) {
	limiter := throttr.NewRateLimit(newFailing(errDown), throttr.WithPolicy(throttr.AllowHits))
	for _, c := range []struct {
		limit, n uint64
		allowed  bool
	}{
		{0, 1, false}, {10, 11, false}, {0, 0, false}, {10, 10, true}, {10, 0, true},
	} {
		res, err := limiter.HitN(t.Context(), "blocked", throttr.Limit{Max: c.limit, Scale: time.Minute}, c.n)
		require.NoError(t, err)
		require.Equal(t, c.allowed, res.Allowed, "a hit of %d, limit %d", c.n, c.limit)
		require.Equal(t, c.allowed, res.Degraded, "no store is needed to deny it")
		require.Equal(t, !c.allowed, res.RetryAfter == throttr.Never)
	}
}

func TestDenyHitsRetryAfterIsAtMostOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := throttr.NewRateLimit(newFailing(errDown), throttr.WithPolicy(throttr.DenyHits))
		for scale, wait := range map[time.Duration]time.Duration{
			time.Millisecond: time.Millisecond,
			time.Second:      time.Second,
			time.Hour:        time.Second,
		} {
			res, err := limiter.Hit(t.Context(), "k", scale, 10)
			require.NoError(t, err)
			require.Equal(t, throttr.Result{Limit: 10, RetryAfter: wait, ResetAfter: wait, ResetAt: time.Now().Add(wait), Degraded: true}, res)
		}
	})
}

func TestFallbackCountsHitsIfTheBackendFails(t *testing.T) {
	backend := newFailing(errDown)
	fallback := inProcess(t)
	// The policy does not apply while the fallback works.
	limiter := throttr.NewRateLimit(backend, throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
	for i := uint64(1); i <= 4; i++ {
		res, err := limiter.HitN(t.Context(), "k", throttr.Limit{Max: 5, Scale: time.Hour}, 2)
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
	require.EqualValues(t, 4, backend.calls.Load(), "each hit tries the backend first")
	count, err := throttr.NewRateLimit(fallback).Get(t.Context(), "k", time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 8, count)
}

func TestPolicyAppliesIfTheFallbackFails(t *testing.T) {
	errFull := errors.New("full")
	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		t.Run(p.String(), func(t *testing.T) {
			limiter := throttr.NewRateLimit(newFailing(errDown), throttr.WithFallback(newFailing(errFull)), throttr.WithPolicy(p), throttr.WithProcesses(3))
			res, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
			if p == throttr.ReturnError {
				require.ErrorIs(t, err, errDown)
				require.ErrorIs(t, err, errFull)
				require.EqualError(t, err, "down; and the fallback: full")
				require.Zero(t, res)
				return
			}
			require.NoError(t, err)
			require.True(t, res.Degraded)
			require.Equal(t, p == throttr.AllowHits, res.Allowed)
			require.EqualValues(t, 10, res.Limit, "not that of a share")
			ok, results, err := limiter.TakeAll(t.Context(), throttr.Limit{Max: 10, Scale: time.Minute}.For("k", 1))
			require.NoError(t, err)
			require.Equal(t, p == throttr.AllowHits, ok)
			require.EqualValues(t, 10, results[0].Limit)
		})
	}
}

// policies returns options that turn a failure of the backend into a decision.
func policies(t *testing.T) map[string][]throttr.Option {
	return map[string][]throttr.Option{
		"allow":    {throttr.WithPolicy(throttr.AllowHits)},
		"deny":     {throttr.WithPolicy(throttr.DenyHits)},
		"fallback": {throttr.WithFallback(inProcess(t))},
		"all":      {throttr.WithFallback(inProcess(t)), throttr.WithPolicy(throttr.AllowHits), throttr.WithTimeout(time.Minute)},
	}
}

func TestPoliciesDoNotApplyToMistakesInTheProgram(t *testing.T) {
	for name, opts := range policies(t) {
		for _, mistake := range []error{
			throttr.ErrScale,
			throttr.ErrRange,
			throttr.ErrClosed,
			throttr.ErrUnsupported,
			throttr.ErrConfig,
			&throttr.ValueSizeError{Server: "a:1", Client: 2, Actual: 4},
			fmt.Errorf("some backend: %w", throttr.ErrScale),
			fmt.Errorf("some backend: %w", throttr.ErrRange),
			fmt.Errorf("some backend: %w", throttr.ErrClosed),
			&throttr.RangeError{Field: "Max"},
			&throttr.RequestError{Err: throttr.ErrClosed},
		} {
			t.Run(fmt.Sprintf("%s/%v", name, mistake), func(t *testing.T) {
				res, err := throttr.NewRateLimit(newFailing(mistake), opts...).Hit(t.Context(), "k", time.Minute, 10)
				require.Equal(t, mistake, err)
				require.Zero(t, res)
			})
		}
		t.Run(name+"/scale", func(t *testing.T) {
			backend := newFailing(errDown)
			_, err := throttr.NewRateLimit(backend, opts...).Hit(t.Context(), "k", 0, 10)
			require.ErrorIs(t, err, throttr.ErrScale)
			require.Zero(t, backend.calls.Load())
		})
	}
}

func TestPoliciesDoNotApplyToMistakesThatTheFallbackReports(t *testing.T) {
	limiter := throttr.NewRateLimit(newFailing(errDown), throttr.WithPolicy(throttr.AllowHits),
		throttr.WithFallback(newFailing(&throttr.RangeError{Field: "Max"})))
	_, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
	require.ErrorIs(t, err, errDown)
	require.ErrorIs(t, err, throttr.ErrRange)
}

func TestPoliciesDoNotApplyIfTheContextHasEnded(t *testing.T) {
	for name, opts := range policies(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := throttr.NewRateLimit(newFailing(ctx.Err()), opts...).Hit(ctx, "k", time.Minute, 10)
			require.ErrorIs(t, err, context.Canceled)

			_, err = throttr.NewRateLimit(newFailing(errDown), opts...).Hit(ctx, "k", time.Minute, 10)
			require.ErrorIs(t, err, errDown, "the cause is another one")
		})
		t.Run(name+"/deadline", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				backend := newFailing(errDown)
				backend.wait = time.Hour
				begun := time.Now()
				// The options of policies are not used: their memory.Backend is outside the bubble.
				limiter := throttr.NewRateLimit(backend, throttr.WithPolicy(throttr.AllowHits), throttr.WithTimeout(time.Second))
				_, err := limiter.Hit(ctx, "k", time.Minute, 10)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 50*time.Millisecond, time.Since(begun))
			})
		})
	}
}

// lateContext is a context whose deadline has passed, but whose Err is still nil.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }
func (lateContext) Err() error                  { return nil }

func TestPoliciesDoNotApplyToADeadlineThatTheBackendReportsFirst(t *testing.T) {
	limiter := throttr.NewRateLimit(newFailing(context.DeadlineExceeded), throttr.WithPolicy(throttr.AllowHits))
	_, err := limiter.Hit(lateContext{t.Context()}, "k", time.Minute, 10)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestPoliciesDoNotApplyIfTheContextEndsDuringTheFallback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fallback := canceling{newFailing(errDown), cancel}
	limiter := throttr.NewRateLimit(newFailing(errDown), throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
	_, err := limiter.Hit(ctx, "k", time.Minute, 10)
	require.ErrorIs(t, err, context.Canceled)
}

// canceling is a backend whose Hit cancels the context.
type canceling struct {
	failing
	cancel context.CancelFunc
}

func (b canceling) Hit(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (window.Window, error) {
	b.cancel()
	return window.Window{}, ctx.Err()
}

func TestTimeoutBoundsTheWaitForABackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFailing(errDown)
		backend.wait = time.Hour
		begun := time.Now()

		limiter := throttr.NewRateLimit(backend, throttr.WithTimeout(20*time.Millisecond))
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.Equal(t, 20*time.Millisecond, time.Since(begun))
		require.EqualError(t, err, "throttr: no answer within 20ms: down: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)

		limiter = throttr.NewRateLimit(backend, throttr.WithTimeout(20*time.Millisecond), throttr.WithPolicy(throttr.AllowHits))
		begun = time.Now()
		res, err := limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.NoError(t, err, "the caller's context has not ended")
		require.True(t, res.Allowed && res.Degraded)
		require.Equal(t, 20*time.Millisecond, time.Since(begun))

		limiter = throttr.NewRateLimit(backend, throttr.WithTimeout(20*time.Millisecond),
			throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(backend))
		begun = time.Now()
		res, err = limiter.Hit(t.Context(), "k", time.Minute, 10)
		require.NoError(t, err)
		require.True(t, res.Allowed && res.Degraded)
		require.Equal(t, 40*time.Millisecond, time.Since(begun), "the timeout applies to the fallback too")
	})
}

func TestPoliciesApplyToHitsOnly(t *testing.T) {
	for name, opts := range policies(t) {
		t.Run(name, func(t *testing.T) {
			limiter := throttr.NewRateLimit(newFailing(errDown), opts...)
			_, err := limiter.Get(t.Context(), "k", time.Minute)
			require.ErrorIs(t, err, errDown)
			require.ErrorIs(t, limiter.Reset(t.Context(), "k", time.Minute), errDown)
		})
	}
}

func TestPoliciesDoNotApplyToAClosedBackend(t *testing.T) {
	b := memory.New()
	b.Close()
	limiter := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits))
	_, err := limiter.Hit(t.Context(), "k", time.Minute, 5)
	require.ErrorIs(t, err, throttr.ErrClosed)
}
