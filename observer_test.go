package throttr_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// recorder is an observer that records the events and their contexts.
type recorder struct {
	mu     sync.Mutex // guards events and ctxs
	events []throttr.Event
	ctxs   []context.Context
}

func (r *recorder) observe(ctx context.Context, e throttr.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	r.ctxs = append(r.ctxs, ctx)
}

// last returns the only event since the previous call of last.
func (r *recorder) last(t *testing.T) throttr.Event {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.events, 1)
	e := r.events[0]
	r.events, r.ctxs = nil, nil
	return e
}

// slow is a backend that delays hits and resets.
type slow struct {
	throttr.Backend
	delay time.Duration
}

func (s slow) Hit(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	time.Sleep(s.delay)
	return s.Backend.Hit(ctx, key, l, n)
}

func (s slow) Reset(ctx context.Context, key string, l throttr.Limit) error {
	time.Sleep(s.delay)
	return s.Backend.Reset(ctx, key, l)
}

// fiveAMinute is the limit of the tests of observers, as it is in events.
var fiveAMinute = throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: throttr.FixedWindow}

// minutely is the limit of a Reset, whose Max does not matter.
var minutely = throttr.Limit{Max: 1, Scale: time.Minute, Algorithm: throttr.FixedWindow}

func TestObserverSeesHitsAndResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := backendtest.NewClock()
		b := memory.New(memory.WithClock(clock.Now))
		defer b.Close()
		var seen recorder
		limiter := throttr.NewRateLimit(slow{b, 3 * time.Millisecond}, throttr.WithObserver(seen.observe))

		res, err := limiter.HitN(t.Context(), "k", throttr.Limit{Max: 5, Scale: time.Minute}, 4)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, throttr.Event{
			Kind: throttr.EventAllowed, Call: "hit", Key: "k", Limit: fiveAMinute, N: 4, Duration: 3 * time.Millisecond,
			Result: throttr.Result{Allowed: true, Count: 4, Limit: 5, Remaining: 1, ResetAfter: res.ResetAfter, ResetAt: res.ResetAt},
		}, seen.last(t))

		clock.Advance(20 * time.Second)
		res, err = limiter.HitN(t.Context(), "k", throttr.Limit{Max: 5, Scale: time.Minute}, 4)
		require.NoError(t, err)
		require.Equal(t, throttr.Event{
			Kind: throttr.EventDenied, Call: "hit", Key: "k", Limit: fiveAMinute, N: 4, Duration: 3 * time.Millisecond,
			Result: throttr.Result{Count: 8, Limit: 5, RetryAfter: 40 * time.Second, ResetAfter: 40 * time.Second, ResetAt: res.ResetAt},
		}, seen.last(t))

		require.NoError(t, limiter.Reset(t.Context(), "k", time.Minute))
		require.Equal(t, throttr.Event{
			Kind: throttr.EventReset, Call: "reset", Key: "k", Limit: minutely, Duration: 3 * time.Millisecond,
		}, seen.last(t))
	})
}

func TestObserverSeesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newFailing(errDown)
		backend.wait = 3 * time.Millisecond
		var seen recorder
		limiter := throttr.NewRateLimit(backend, throttr.WithObserver(seen.observe))

		_, err := limiter.HitN(t.Context(), "k", throttr.Limit{Max: 5, Scale: time.Minute}, 4)
		require.Equal(t, errDown, err)
		require.Equal(t, throttr.Event{
			Kind: throttr.EventFailed, Call: "hit", Key: "k", Limit: fiveAMinute, N: 4, Duration: 3 * time.Millisecond,
			Result: throttr.Result{Limit: 5}, Err: errDown,
		}, seen.last(t))

		require.Equal(t, errDown, limiter.Reset(t.Context(), "k", time.Minute))
		require.Equal(t, throttr.Event{
			Kind: throttr.EventFailed, Call: "reset", Key: "k", Limit: minutely, Duration: 3 * time.Millisecond, Err: errDown,
		}, seen.last(t))
	})
}

func TestObserverSeesDecisionsOfPoliciesAndTheirCause(t *testing.T) {
	for _, c := range []struct {
		opt   throttr.Option
		kind  throttr.EventKind
		count uint64
	}{
		{throttr.WithPolicy(throttr.AllowHits), throttr.EventAllowed, 0},
		{throttr.WithPolicy(throttr.DenyHits), throttr.EventDenied, 0},
		{throttr.WithFallback(inProcess(t)), throttr.EventAllowed, 1},
	} {
		var seen recorder
		limiter := throttr.NewRateLimit(newFailing(errDown), c.opt, throttr.WithObserver(seen.observe))
		res, err := limiter.Hit(t.Context(), "k", time.Minute, 5)
		require.NoError(t, err)
		e := seen.last(t)
		require.Equal(t, c.kind, e.Kind)
		require.Equal(t, res, e.Result)
		require.True(t, e.Result.Degraded)
		require.Equal(t, c.count, e.Result.Count)
		require.Equal(t, errDown, e.Err)
	}
}

// Observers are called in order, with the context of the caller, and not with that of the call of the backend.
func TestObserversAreCalledInOrder(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "of the caller")
	var order []string
	named := func(name string) throttr.Option {
		return throttr.WithObserver(func(got context.Context, e throttr.Event) {
			order = append(order, name+" "+e.Kind.String())
			require.Equal(t, "of the caller", got.Value(key{}))
			require.NoError(t, got.Err())
		})
	}
	limiter := throttr.NewRateLimit(slow{Backend: inProcess(t)}, named("first"), named("second"), named("third"))
	_, err := limiter.Hit(ctx, "k", time.Minute, 1)
	require.NoError(t, err)
	require.NoError(t, limiter.Reset(ctx, "k", time.Minute))
	require.Equal(t, []string{"first allowed", "second allowed", "third allowed", "first reset", "second reset", "third reset"}, order)
}

func TestEachHitIsObservedOnce(t *testing.T) {
	const goroutines, hits, limit = 16, 500, 1000
	var seen recorder
	limiter := throttr.NewRateLimit(inProcess(t), throttr.WithObserver(seen.observe))
	var callers sync.WaitGroup
	for range goroutines {
		callers.Go(func() {
			for range hits {
				if _, err := limiter.Hit(t.Context(), "k", time.Hour, limit); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	kinds, counts := map[throttr.EventKind]int{}, map[uint64]bool{}
	for _, e := range seen.events {
		kinds[e.Kind]++
		counts[e.Result.Count] = true
	}
	require.Equal(t, map[throttr.EventKind]int{throttr.EventAllowed: limit, throttr.EventDenied: goroutines*hits - limit}, kinds)
	require.Len(t, counts, goroutines*hits, "no two events have the same count")
}

// commandError is an error that can't be compared, as drivers of some databases have.
type commandError struct{ labels []string }

func (e commandError) Error() string { return "not primary " + strings.Join(e.labels, " ") }

type uncomparable struct{ failing }

func (uncomparable) Take(context.Context, string, throttr.Limit, uint64) (w window.Window, err error) {
	return w, commandError{}
}

func (uncomparable) TakeAll(context.Context, []throttr.Take, []window.Window) (bool, error) {
	return false, commandError{}
}

func (uncomparable) Reset(context.Context, string, throttr.Limit) error { return commandError{} }

func TestAnErrorThatCannotBeComparedIsReturned(t *testing.T) {
	var seen recorder
	limiter := throttr.NewRateLimit(uncomparable{}, throttr.WithObserver(seen.observe))
	limit := throttr.Limit{Max: 1, Scale: time.Second}
	for name, call := range map[string]func() error{
		"take":     func() error { _, err := limiter.Take(t.Context(), "k", limit, 1); return err },
		"take all": func() error { _, _, err := limiter.TakeAll(t.Context(), limit.For("k", 1)); return err },
		"wait":     func() error { _, err := limiter.Wait(t.Context(), "k", limit, 1); return err },
		"reset":    func() error { return limiter.Reset(t.Context(), "k", time.Second) },
	} {
		require.ErrorAs(t, call(), new(commandError), name)
		e := seen.last(t)
		require.Equal(t, throttr.EventFailed, e.Kind, name)
		require.ErrorAs(t, e.Err, new(commandError), name)
	}
}
