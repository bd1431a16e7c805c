package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

// tenAMinute is the limit of the tests of outages, as it is in events.
var tenAMinute = throttr.Limit{Max: 10, Scale: time.Minute, Algorithm: throttr.FixedWindow}

func TestDefaultPolicyReturnsTheErrorOfTheBackend(t *testing.T) {
	for name, opts := range map[string][]throttr.Option{
		"default":       nil,
		"ReturnError":   {throttr.WithPolicy(throttr.ReturnError)},
		"last one wins": {throttr.WithPolicy(throttr.AllowHits), throttr.WithPolicy(throttr.ReturnError)},
		"no fallback":   {throttr.WithFallback(nil)},
	} {
		for call, decide := range decisions {
			res, err := decide(t.Context(), throttr.NewRateLimit(failing(t, errDown), opts...), tenAMinute, 1)
			require.Equal(t, errDown, err, "%s, %s: it is not wrapped", name, call)
			require.Zero(t, res)
		}
	}
}

func TestPoliciesDecideIfTheBackendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for limit, wait := range map[throttr.Limit]time.Duration{
			{Max: 10, Scale: time.Millisecond}: time.Millisecond, {Max: 10, Scale: time.Second}: time.Second, {Max: 10, Scale: time.Hour}: time.Second,
			{Max: 10, Calendar: throttr.Month}: time.Second,
		} {
			denied := throttr.Result{Limit: 10, RetryAfter: wait, ResetAfter: wait, ResetAt: time.Now().Add(wait), Degraded: true}
			for policy, want := range map[throttr.Policy]throttr.Result{throttr.AllowHits: {Allowed: true, Limit: 10, Degraded: true}, throttr.DenyHits: denied} {
				limiter := throttr.NewRateLimit(failing(t, errDown), throttr.WithPolicy(policy))
				for call, decide := range decisions {
					if call == "wait" && policy == throttr.DenyHits {
						continue // it goes on
					}
					res, err := decide(t.Context(), limiter, limit, 3)
					require.NoError(t, err)
					require.Equal(t, want, res, "%v, %s", policy, call)
				}
				unlimited := throttr.Limit{Name: "u", Max: throttr.Unlimited, Scale: time.Minute}
				_, results, err := limiter.TakeAll(t.Context(), unlimited.For("k", 1), limit.For("k", 3))
				require.NoError(t, err)
				require.False(t, results[0].Degraded, "no store is needed for it")
				require.True(t, results[1].Degraded)
			}
		}
	})
}

func TestAllowHitsDeniesHitsThatNoWindowWouldAllow(t *testing.T) {
	limiter := throttr.NewRateLimit(failing(t, errDown), throttr.WithPolicy(throttr.AllowHits))
	bucket := throttr.Limit{Max: 5, Scale: time.Hour, Burst: 10, Algorithm: throttr.TokenBucket}
	none, ten := throttr.Limit{Scale: time.Minute}, throttr.Limit{Max: 10, Scale: time.Minute}
	for _, c := range []struct {
		limit   throttr.Limit
		n       uint64
		allowed bool
	}{
		{none, 1, false}, {none, 0, false}, {ten, 11, false}, {ten, 10, true}, {ten, 0, true}, {bucket, 11, false}, {bucket, 10, true},
	} {
		res, err := limiter.HitN(t.Context(), "blocked", c.limit, c.n)
		require.NoError(t, err)
		require.Equal(t, c.allowed, res.Allowed, "a hit of %d, limit %v", c.n, c.limit)
		require.Equal(t, c.allowed, res.Degraded, "no store is needed to deny it")
		require.Equal(t, !c.allowed, res.RetryAfter == throttr.Never)
	}
}

func TestFallbackCountsIfTheBackendFails(t *testing.T) {
	for call, counted := range map[string]uint64{"hit": 6, "charge": 6, "take": 4, "take all": 4, "reserve": 4} { // the first ones count what is denied
		backend, fallback := failing(t, errDown), inProcess(t)
		// The policy does not apply while the fallback works.
		limiter := throttr.NewRateLimit(backend, throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
		for i := range uint64(3) {
			res, err := decisions[call](t.Context(), limiter, throttr.Limit{Max: 5, Scale: time.Hour}, 2)
			require.NoError(t, err)
			require.True(t, res.Degraded)
			require.EqualValues(t, 5, res.Limit)
			require.Equal(t, i < 2, res.Allowed, call)
			if res.Allowed {
				require.Equal(t, 2*(i+1), res.Count)
				require.Equal(t, 5-res.Count, res.Remaining)
			} else {
				require.InDelta(t, time.Hour, res.RetryAfter, float64(time.Minute))
			}
		}
		require.Equal(t, counted, count(t, throttr.NewRateLimit(fallback), "k", time.Hour), call)
		require.EqualValues(t, 3, backend.asked.Load(), "each call tries the backend first")
	}
}

func TestPolicyAppliesIfTheFallbackFails(t *testing.T) {
	errFull := errors.New("full")
	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		limiter := throttr.NewRateLimit(failing(t, errDown), throttr.WithFallback(failing(t, errFull)), throttr.WithPolicy(p), throttr.WithProcesses(3))
		for _, call := range []string{"hit", "take all"} {
			res, err := decisions[call](t.Context(), limiter, tenAMinute, 1)
			if p == throttr.ReturnError {
				require.ErrorIs(t, err, errDown)
				require.ErrorIs(t, err, errFull)
				require.EqualError(t, err, "down; and the fallback: full")
				require.Zero(t, res)
				continue
			}
			require.NoError(t, err)
			require.True(t, res.Degraded)
			require.Equal(t, p == throttr.AllowHits, res.Allowed)
			require.EqualValues(t, 10, res.Limit, "not that of a share")
		}
	}
}

// policies returns options that turn a failure of the backend into a decision.
func policies(t *testing.T) map[string][]throttr.Option {
	return map[string][]throttr.Option{
		"allow":    {throttr.WithPolicy(throttr.AllowHits)},
		"deny":     {throttr.WithPolicy(throttr.DenyHits)},
		"fallback": {throttr.WithFallback(inProcess(t, memory.WithClock(time.Now)))},
		"all":      {throttr.WithFallback(inProcess(t, memory.WithClock(time.Now))), throttr.WithPolicy(throttr.AllowHits), throttr.WithTimeout(time.Minute)},
	}
}

func TestPoliciesDoNotApplyToMistakesInTheProgram(t *testing.T) {
	for name, opts := range policies(t) {
		for _, mistake := range []error{
			throttr.ErrScale, throttr.ErrRange, throttr.ErrClosed, throttr.ErrUnsupported, throttr.ErrConfig,
			&throttr.ValueSizeError{Server: "a:1", Client: 2, Actual: 4},
			fmt.Errorf("some backend: %w", throttr.ErrScale),
			fmt.Errorf("some backend: %w", throttr.ErrClosed),
			&throttr.RangeError{Field: "Max"},
			&throttr.RequestError{Err: throttr.ErrClosed},
		} {
			for call, decide := range decisions {
				res, err := decide(t.Context(), throttr.NewRateLimit(failing(t, mistake), opts...), tenAMinute, 1)
				require.Equal(t, mistake, err, "%s, %s", name, call)
				require.Zero(t, res)
			}
		}
	}
	for _, mistake := range []error{&throttr.RangeError{Field: "Max"}, throttr.ErrUnsupported} {
		limiter := throttr.NewRateLimit(failing(t, errDown), throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(failing(t, mistake)))
		for _, decide := range decisions {
			_, err := decide(t.Context(), limiter, tenAMinute, 1)
			require.ErrorIs(t, err, errDown)
			require.ErrorIs(t, err, mistake, "of the fallback")
		}
	}
	closed := memory.New()
	closed.Close()
	_, err := throttr.NewRateLimit(closed, throttr.WithPolicy(throttr.AllowHits)).Hit(t.Context(), "k", time.Minute, 5)
	require.ErrorIs(t, err, throttr.ErrClosed)
}

// lateContext is a context whose deadline has passed, but whose Err is still nil.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }
func (lateContext) Err() error                  { return nil }

func TestPoliciesDoNotApplyIfTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		hit := func(ctx context.Context, backend throttr.Backend, opts ...throttr.Option) error {
			_, err := throttr.NewRateLimit(backend, opts...).Hit(ctx, "k", time.Minute, 10)
			return err
		}
		for name, opts := range policies(t) {
			require.ErrorIs(t, hit(canceled, failing(t, context.Canceled), opts...), context.Canceled, name)
			require.ErrorIs(t, hit(canceled, failing(t, errDown), opts...), errDown, "%s: the cause is another one", name)
			late := lateContext{t.Context()}
			require.ErrorIs(t, hit(late, failing(t, context.DeadlineExceeded), opts...), context.DeadlineExceeded, "%s: the backend is the first to see it", name)
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begun := time.Now()
			store := newDistant(t)
			store.be(hangs)
			require.ErrorIs(t, hit(short, store, opts...), context.DeadlineExceeded, name)
			require.Equal(t, 50*time.Millisecond, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		fallback := newDistant(t)
		fallback.be(func(ctx context.Context, _ call) error { cancel(); return ctx.Err() })
		err := hit(ctx, failing(t, errDown), throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
		require.ErrorIs(t, err, context.Canceled, "it ends during the fallback")
	})
}

func TestPoliciesApplyToDecisionsOnly(t *testing.T) {
	for name, opts := range policies(t) {
		limiter := throttr.NewRateLimit(failing(t, errDown), opts...)
		_, err := limiter.Get(t.Context(), "k", time.Minute)
		require.ErrorIs(t, err, errDown, name)
		require.ErrorIs(t, limiter.Reset(t.Context(), "k", time.Minute), errDown, name)
	}
}
