package throttr_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// recorder is an observer that records the events.
type recorder struct {
	mu     sync.Mutex // guards events
	events []throttr.Event
}

func (r *recorder) observe(_ context.Context, e throttr.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// last returns the only event since the previous call of last.
func (r *recorder) last(t *testing.T) throttr.Event {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.events, 1)
	e := r.events[0]
	r.events = nil
	return e
}

// fiveAMinute is the limit of the tests of observers, as it is in events.
var fiveAMinute = throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: throttr.FixedWindow}

// minutely is the limit of a Reset, whose Max does not matter.
var minutely = throttr.Limit{Max: 1, Scale: time.Minute, Algorithm: throttr.FixedWindow}

func TestObserverSeesHitsAndResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		store := newDistant(t)
		store.answer(func(context.Context, call) error { time.Sleep(3 * time.Millisecond); return nil })
		limiter := throttr.NewRateLimit(store, throttr.WithObserver(seen.observe))
		hit := func() (throttr.Result, throttr.Event, error) {
			res, err := limiter.HitN(t.Context(), "k", throttr.Limit{Max: 5, Scale: time.Minute}, 4)
			return res, throttr.Event{Call: "hit", Key: "k", Limit: fiveAMinute, N: 4, Duration: 3 * time.Millisecond, Result: res}, err
		}
		reset := throttr.Event{Kind: throttr.EventReset, Call: "reset", Key: "k", Limit: minutely, Duration: 3 * time.Millisecond}
		for _, kind := range []throttr.EventKind{throttr.EventAllowed, throttr.EventDenied} {
			res, want, err := hit()
			require.NoError(t, err)
			require.Equal(t, kind == throttr.EventAllowed, res.Allowed)
			want.Kind = kind
			require.Equal(t, want, seen.last(t))
		}
		require.NoError(t, limiter.Reset(t.Context(), "k", time.Minute))
		require.Equal(t, reset, seen.last(t))
		allDecided(t)(limiter.TakeAll(t.Context(), minutely.For("l", 1)))
		require.Equal(t, 3*time.Millisecond, seen.last(t).Duration)

		store.be(func(context.Context, call) error { time.Sleep(3 * time.Millisecond); return errDown })
		_, want, err := hit()
		require.Equal(t, errDown, err)
		want.Kind, want.Err = throttr.EventFailed, errDown
		want.Result = throttr.Result{Limit: 5}
		require.Equal(t, want, seen.last(t))
		require.Equal(t, errDown, limiter.Reset(t.Context(), "k", time.Minute))
		reset.Kind, reset.Err = throttr.EventFailed, errDown
		require.Equal(t, reset, seen.last(t))
	})
}

// Observers are called in order, with the context of the caller, and not with that of the call of the backend.
func TestObserversAreCalledInOrder(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "of the caller")
	var order []string
	var opts []throttr.Option
	for _, name := range []string{"first", "second", "third"} {
		opts = append(opts, throttr.WithObserver(func(got context.Context, e throttr.Event) {
			order = append(order, name+" "+e.Kind.String())
			require.Equal(t, "of the caller", got.Value(key{}))
			require.NoError(t, got.Err())
		}))
	}
	limiter := throttr.NewRateLimit(newDistant(t), opts...)
	decided(t)(limiter.Hit(ctx, "k", time.Minute, 1))
	require.NoError(t, limiter.Reset(ctx, "k", time.Minute))
	require.Equal(t, []string{"first allowed", "second allowed", "third allowed", "first reset", "second reset", "third reset"}, order)
}

func TestObserverSeesTakes(t *testing.T) {
	b, _ := newMemory(t)
	var events []throttr.Event
	limiter := throttr.NewRateLimit(b, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
		e.Duration, e.Result.ResetAfter, e.Result.ResetAt = 0, 0, time.Time{}
		events = append(events, e)
	}))
	wide := throttr.Limit{Name: "wide", Max: 100, Scale: time.Hour, Algorithm: throttr.FixedWindow}
	narrow := throttr.Limit{Name: "narrow", Max: 5, Scale: time.Second, Algorithm: throttr.FixedWindow}
	rv := reserve(t, limiter, wide.For("k", 2), narrow.For("k", 5))
	allDecided(t)(limiter.TakeAll(t.Context(), wide.For("k", 2), narrow.For("k", 5)))
	require.NoError(t, rv.Commit(t.Context(), 2, 1))
	decided(t)(limiter.Take(t.Context(), "k", wide, 1))
	decided(t)(limiter.Wait(t.Context(), "k", narrow, 1))
	decided(t)(limiter.Take(t.Context(), "k", narrow, 6))
	decided(t)(limiter.Charge(t.Context(), "k", narrow, 9))
	event := func(kind throttr.EventKind, call string, l throttr.Limit, n uint64, res throttr.Result) throttr.Event {
		res.Limit = l.Max
		return throttr.Event{Kind: kind, Call: call, Key: "k", Limit: l, N: n, Result: res}
	}
	settled := func(l throttr.Limit, n, reserved uint64) throttr.Event {
		e := event(throttr.EventSettled, "reserve", l, n, throttr.Result{})
		e.Reserved = reserved
		return e
	}
	require.Equal(t, []throttr.Event{
		event(throttr.EventAllowed, "reserve", wide, 2, throttr.Result{Allowed: true, Count: 2, Remaining: 98}),
		event(throttr.EventAllowed, "reserve", narrow, 5, throttr.Result{Allowed: true, Count: 5}),
		event(throttr.EventDenied, "take", narrow, 5, throttr.Result{Count: 5, RetryAfter: time.Second}),
		settled(wide, 2, 2), settled(narrow, 1, 5),
		event(throttr.EventAllowed, "take", wide, 1, throttr.Result{Allowed: true, Count: 3, Remaining: 97}),
		event(throttr.EventAllowed, "wait", narrow, 1, throttr.Result{Allowed: true, Count: 2, Remaining: 3}),
		event(throttr.EventDenied, "take", narrow, 6, throttr.Result{RetryAfter: throttr.Never}),
		event(throttr.EventDenied, "charge", narrow, 9, throttr.Result{Count: 11, RetryAfter: time.Second}),
	}, events)
}
