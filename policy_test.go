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
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
)

// tenAMinute is the limit of the tests of outages, as it is in events.
var tenAMinute = throttr.Limit{Max: 10, Scale: time.Minute, Algorithm: throttr.FixedWindow}

// commandError is an error that can't be compared, as drivers of some databases have.
type commandError []string

func (commandError) Error() string { return "not primary" }

// outcome is what follows from the error of a store.
type outcome struct {
	cause    error          // of the store
	fallback error          // errAnswers: it answers; nil: there is none
	policy   throttr.Policy // which decides if there is no error
	errs     []error        // of the call; a single one is not wrapped
}

var errAnswers, errFull = errors.New("none"), errors.New("full")

// outcomes are the table in the comment of failover.
func outcomes() (all []outcome) {
	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		all = append(all, outcome{nil, nil, p, nil}, outcome{nil, errAnswers, p, nil}, outcome{errDown, errAnswers, p, nil})
		for _, mistake := range []error{throttr.ErrUnsupported, &throttr.RangeError{Field: "Max"}} {
			all = append(all, outcome{errDown, mistake, p, []error{errDown, mistake}})
		}
		for _, mistake := range []error{
			throttr.ErrScale, throttr.ErrRange, throttr.ErrClosed, throttr.ErrUnsupported, throttr.ErrConfig,
			&throttr.ValueSizeError{Server: "a:1", Client: 2, Actual: 4}, &throttr.RequestError{Err: throttr.ErrClosed},
			fmt.Errorf("some backend: %w", throttr.ErrScale),
		} {
			all = append(all, outcome{mistake, nil, p, []error{mistake}}, outcome{mistake, errAnswers, p, []error{mistake}})
		}
		for _, cause := range []error{errDown, throttr.ErrFull, throttr.ErrUnavailable, commandError{}} {
			one := outcome{cause, nil, p, []error{cause}}
			both := outcome{cause, errFull, p, []error{cause, errFull}}
			if p != throttr.ReturnError {
				one.errs, both.errs = nil, nil
			}
			all = append(all, one, both)
		}
	}
	return all
}

// Each decision asks the store once, and the fallback once if that fails. The observer is told the cause, whoever
// decides.
func TestWhoDecidesIfTheStoreFails(t *testing.T) {
	for _, o := range outcomes() {
		for name, decide := range decisions {
			for _, leases := range []bool{false, true} {
				if name != "wait" || o.policy != throttr.DenyHits { // which goes on
					o.test(t, name, decide, leases)
				}
			}
		}
	}
}

// is is errors.Is, also of an error that can't be compared.
func is(err, want error) bool {
	return errors.Is(err, want) || errors.As(want, new(commandError)) && errors.As(err, new(commandError))
}

func (o outcome) test(t *testing.T, name string, decide decision, leases bool) {
	var seen recorder
	store, second := failing(t, o.cause), failing(t, o.fallback)
	opts := []throttr.Option{throttr.WithLogger(nil), throttr.WithPolicy(o.policy), throttr.WithObserver(seen.observe), throttr.WithProcesses(3)}
	if o.fallback != nil {
		opts = append(opts, throttr.WithFallback(second))
	}
	if o.fallback == errAnswers {
		second.be(nil)
	}
	backend := throttr.Backend(store)
	if leases {
		l := lease.New(store)
		defer l.Close()
		backend = l
	}
	res, err := decide(t.Context(), throttr.NewRateLimit(backend, opts...), tenAMinute, 1)
	e, text := seen.last(t), fmt.Sprintf("%s: %+v", name, o)
	require.EqualValues(t, 1, store.asked.Load(), text)
	require.LessOrEqual(t, second.asked.Load(), int64(1), text)
	for _, want := range o.errs {
		require.True(t, is(err, want) && is(e.Err, want), "%s: %v, %v", text, err, e.Err)
	}
	switch {
	case len(o.errs) == 1 && !leases:
		require.Equal(t, o.errs[0], err, text)
	case len(o.errs) == 2:
		require.ErrorContains(t, err, "; and the fallback: ")
	}
	if o.errs != nil {
		require.Equal(t, throttr.EventFailed, e.Kind, text)
		require.Zero(t, res)
		return
	}
	require.NoError(t, err, text)
	allowed := o.cause == nil || o.fallback == errAnswers || o.policy == throttr.AllowHits
	require.Equal(t, allowed, res.Allowed, text)
	require.Equal(t, allowed, e.Kind == throttr.EventAllowed, text)
	require.Equal(t, o.cause != nil, res.Degraded, text)
	require.Equal(t, res, e.Result, text)
	require.True(t, is(e.Err, o.cause), text)
	if shared := o.cause != nil && o.fallback == errAnswers; !shared {
		require.EqualValues(t, 10, res.Limit, text)
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
					res := decided(t)(decide(t.Context(), limiter, limit, 3))
					require.Equal(t, want, res, "%v, %s", policy, call)
				}
				unlimited := throttr.Limit{Name: "u", Max: throttr.Unlimited, Scale: time.Minute}
				_, results := allDecided(t)(limiter.TakeAll(t.Context(), unlimited.For("k", 1), limit.For("k", 3)))
				require.Equal(t, throttr.Result{Allowed: true, Limit: throttr.Unlimited, Remaining: throttr.Unlimited}, results[0], "no store is needed for it")
				require.True(t, results[1].Degraded)
				res := decided(t)(limiter.HitN(t.Context(), "k", limit, 11))
				require.Equal(t, throttr.Result{Limit: 10, RetryAfter: throttr.Never}, res, "nor to deny what can never be granted")
			}
		}
	})
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

// lateContext is a context whose deadline has passed, but whose Err is still nil.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }
func (lateContext) Err() error                  { return nil }

func TestPoliciesDoNotApplyToOtherCallsOrIfTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		hit := func(ctx context.Context, backend throttr.Backend, opts ...throttr.Option) error {
			_, err := throttr.NewRateLimit(backend, opts...).Hit(ctx, "k", time.Minute, 10)
			return err
		}
		for name, opts := range policies(t) {
			limiter := throttr.NewRateLimit(failing(t, errDown), opts...)
			_, err := limiter.Get(t.Context(), "k", time.Minute)
			require.ErrorIs(t, err, errDown, "%s: it is no decision", name)
			require.ErrorIs(t, limiter.Reset(t.Context(), "k", time.Minute), errDown, name)
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
