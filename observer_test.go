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

// A shadow limit counts as the same limit without Shadow, reports what that would have denied, and allows.
func TestAShadowLimitCountsAndDeniesNothing(t *testing.T) {
	for name, call := range withPeek() {
		for _, algorithm := range []throttr.Algorithm{throttr.FixedWindow, throttr.TokenBucket} {
			for _, observed := range []bool{false, true} {
				testkit.Bubble(t, fmt.Sprint(name, "/", algorithm, "/", observed), func(t *testing.T) { testShadow(t, name, call, algorithm, observed) })
			}
		}
	}
}

func testShadow(t *testing.T, name string, call decision, algorithm throttr.Algorithm, observed bool) {
	var seen recorder
	var opts []throttr.Option
	if observed {
		opts = append(opts, throttr.WithObserver(seen.observe))
	}
	shadowed := throttr.NewRateLimit(inProcess(t, memory.WithClock(time.Now)), opts...)
	enforced := throttr.NewRateLimit(inProcess(t, memory.WithClock(time.Now)))
	limit := throttr.Limit{Name: "l", Max: 10, Scale: time.Minute, Algorithm: algorithm}
	shadow := limit
	shadow.Shadow = true
	require.NoError(t, shadowed.Check(shadow))
	begun := time.Now()
	for i := range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a wait that would take longer is a denial
		res := decided(t)(call(ctx, shadowed, shadow, 3))
		require.True(t, res.Allowed)
		require.Zero(t, res.RetryAfter)
		if observed && name != "peek" {
			e := seen.last(t)
			require.Equal(t, shadow, e.Limit)
			require.Equal(t, map[bool]throttr.EventKind{true: throttr.EventAllowed, false: throttr.EventWouldDeny}[i < 3], e.Kind)
			require.Equal(t, i < 3, e.Result.Allowed)
			require.Equal(t, i >= 3, e.Result.RetryAfter > 0)
		}
		want, err := call(ctx, enforced, limit, 3)
		if err == nil {
			require.Equal(t, want.Count, res.Count)
		}
		cancel()
	}
	require.Zero(t, time.Since(begun), "nothing waits")
	for _, l := range []throttr.Limit{limit, shadow} { // one count
		a := decided(t)(shadowed.Peek(t.Context(), "k", l, 0))
		b := decided(t)(enforced.Peek(t.Context(), "k", limit, 0))
		require.Equal(t, b.Count, a.Count)
		require.Equal(t, b.Remaining, a.Remaining)
	}
	require.NoError(t, shadowed.Forget(t.Context(), "k", shadow))
	res := decided(t)(shadowed.Peek(t.Context(), "k", limit, 0))
	require.Zero(t, res.Count)
}

// Neither an outage nor a limit that the backend can't keep is a reason to deny.
func TestAShadowLimitAllowsWhateverTheBackendReturns(t *testing.T) {
	var seen recorder
	for _, failure := range []error{errors.New("down"), throttr.ErrUnsupported, throttr.ErrClosed, throttr.ErrRange} {
		b := failing(t, failure)
		for _, policy := range []throttr.Policy{throttr.ReturnError, throttr.DenyHits} {
			limiter := throttr.NewRateLimit(b, throttr.WithPolicy(policy), throttr.WithObserver(seen.observe))
			unlimited := throttr.Limit{Max: throttr.Unlimited, Scale: time.Minute}
			shadow := throttr.Limit{Name: "l", Max: 10, Scale: time.Minute, Shadow: true}
			_, results := allDecided(t)(limiter.TakeAll(t.Context(), unlimited.For("k", 1), shadow.For("k", 1)))
			require.EqualValues(t, 10, results[1].Limit)
			for name, call := range withPeek() {
				seen.events = nil
				res, err := call(t.Context(), limiter, shadow, 3)
				require.NoError(t, err, "%s: %v", name, failure)
				require.True(t, res.Allowed && res.Degraded, "%s: %v", name, failure)
				if name != "peek" {
					require.Len(t, seen.events, 1)
					require.ErrorIs(t, seen.events[0].Err, failure)
				}
			}
		}
	}
	b, _ := newMemory(t)
	_, err := throttr.NewRateLimit(b).Take(t.Context(), "k", throttr.Limit{Max: 1, Scale: 60, Shadow: true}, 1)
	require.ErrorIs(t, err, throttr.ErrScale, "what is invalid is a mistake")
}

func TestShadowLimitsBesideOthers(t *testing.T) {
	var seen recorder
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		ctx := t.Context()
		old := throttr.Limit{Name: "old", Max: 10, Scale: time.Minute}
		strict := throttr.Limit{Name: "new", Max: 5, Scale: time.Minute, Shadow: true}
		tiny := throttr.Limit{Name: "tiny", Max: 1, Scale: time.Minute, Shadow: true}
		count := func(l throttr.Limit) uint64 {
			res := decided(t)(limiter.Peek(ctx, "k", l, 0))
			return res.Count
		}
		kinds := func() (kinds []string) {
			for _, e := range seen.events {
				kinds = append(kinds, e.Limit.Name+" "+e.Kind.String())
			}
			seen.events = nil
			return kinds
		}
		takes := []throttr.Take{strict.For("k", 4), old.For("k", 4), tiny.For("k", 2)}
		ok, results := allDecided(t)(limiter.TakeAll(ctx, takes...))
		require.True(t, ok)
		require.True(t, results[0].Allowed && results[1].Allowed && results[2].Allowed)
		require.EqualValues(t, 1, results[0].Remaining)
		require.Equal(t, []string{"old allowed", "new allowed", "tiny would deny"}, kinds())

		rv := reserve(t, limiter, takes...)
		require.Equal(t, []string{"old allowed", "new would deny", "tiny would deny"}, kinds())
		require.EqualValues(t, 4, count(strict), "what would be denied is not counted")
		ok, results = allDecided(t)(limiter.TakeAll(ctx, takes...))
		require.False(t, ok)
		require.True(t, results[0].Allowed)
		require.False(t, results[1].Allowed)
		require.Equal(t, []string{"old denied"}, kinds(), "what others deny is not counted")
		require.NoError(t, rv.Commit(ctx, 1, 1, 1))
		require.Equal(t, []string{"new settled", "old settled", "tiny settled"}, kinds())
		require.EqualValues(t, 5, count(old))
		require.EqualValues(t, 4, count(strict), "nothing of it is given back")

		rv, err := limiter.WaitAll(ctx, old.For("k", 5), strict.For("k", 1))
		require.NoError(t, err)
		require.EqualValues(t, 5, count(strict))
		require.NoError(t, rv.Cancel(ctx))
		require.EqualValues(t, 4, count(strict))
		require.Equal(t, "wait", seen.events[3].Call, "of what is settled")
		seen.events = nil
		all := throttr.Limit{Name: "all", Max: throttr.Unlimited, Scale: time.Minute, Shadow: true} // no store is asked
		require.NoError(t, reserve(t, limiter, all.For("k", 9), strict.For("k", 1)).Commit(ctx, 5, 3))
		require.Equal(t, []string{"all allowed", "new allowed", "all settled", "new settled"}, kinds())
		require.EqualValues(t, 7, count(strict))

		begun := time.Now()
		_, err = limiter.WaitAll(ctx, old.For("k", 6), tiny.For("k", 1))
		require.NoError(t, err)
		require.Greater(t, time.Since(begun), 50*time.Second, "the others are waited for")
		require.EqualValues(t, 1, count(tiny))
	}, throttr.WithObserver(seen.observe))
}

// A limit is tried out before it is enforced.
func ExampleLimit_shadow() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
		if e.Kind == throttr.EventWouldDeny {
			fmt.Println("would deny", e.Key, e.Limit.Name)
		}
	}))
	api := throttr.Limit{Name: "api", Max: 2, Scale: time.Minute, Shadow: true}
	for range 3 {
		res, err := limiter.Take(context.Background(), "user:42", api, 1)
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// would deny user:42 api
	// true 0 <nil>
}
