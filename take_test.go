package throttr_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// newMemory returns a backend with a clock, which is closed at the end of the test.
func newMemory(t *testing.T) (*memory.Backend, backendtest.Clock) {
	clock := backendtest.NewClock()
	b := memory.New(memory.WithClock(clock.Now))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, clock
}

// limiters returns a limiter that calls the backend itself, and one that goes through the interface.
func limiters(t *testing.T) map[string]*throttr.RateLimit {
	direct, _ := newMemory(t)
	other, _ := newMemory(t)
	return map[string]*throttr.RateLimit{
		"direct": throttr.NewRateLimit(direct),
		"interface": throttr.NewRateLimit(other, throttr.WithTimeout(time.Minute),
			throttr.WithObserver(throttr.ObserverFunc(func(context.Context, throttr.Event) {}))),
	}
}

func TestRefusedTakeCostsNothing(t *testing.T) {
	for name, limiter := range limiters(t) {
		t.Run(name, func(t *testing.T) {
			take := func(n uint64) throttr.Result {
				res, err := limiter.Take(t.Context(), "k", time.Minute, 10, n)
				require.NoError(t, err)
				require.EqualValues(t, 10, res.Limit)
				return res
			}
			res := take(8)
			require.True(t, res.Allowed)
			require.EqualValues(t, 2, res.Remaining)
			require.Zero(t, res.RetryAfter)
			require.False(t, res.ResetAt.IsZero())
			for range 3 {
				res = take(5)
				require.False(t, res.Allowed)
				require.EqualValues(t, 8, res.Count)
				require.EqualValues(t, 2, res.Remaining)
				require.Equal(t, time.Minute, res.RetryAfter)
			}
			require.True(t, take(2).Allowed)
			var cost *throttr.CostError
			_, err := limiter.Take(t.Context(), "k", time.Minute, 10, 11)
			require.ErrorAs(t, err, &cost)
			_, err = limiter.Take(t.Context(), "k", 60, 10, 1)
			require.ErrorIs(t, err, throttr.ErrScale)
		})
	}
}

func TestTakeAllTakesAllOrNone(t *testing.T) {
	for name, limiter := range limiters(t) {
		t.Run(name, func(t *testing.T) {
			limits := []throttr.Limit{
				{Key: "wide", Scale: time.Minute, Limit: 100, N: 1}, {Key: "narrow", Scale: time.Second, Limit: 1, N: 1},
			}
			ok, results, err := limiter.TakeAll(t.Context(), limits...)
			require.NoError(t, err)
			require.True(t, ok && results[0].Allowed && results[1].Allowed)
			require.EqualValues(t, 99, results[0].Remaining)
			for range 5 {
				ok, results, err = limiter.TakeAll(t.Context(), limits...)
				require.NoError(t, err)
				require.False(t, ok)
				require.True(t, results[0].Allowed, "it would have been granted alone")
				require.Zero(t, results[0].RetryAfter)
				require.False(t, results[1].Allowed)
				require.Equal(t, time.Second, results[1].RetryAfter)
			}
			n, err := limiter.Get(t.Context(), "wide", time.Minute)
			require.NoError(t, err)
			require.EqualValues(t, 1, n, "refused takes drain the other limit")

			var cost *throttr.CostError
			same := throttr.Limit{Key: "same", Scale: time.Minute, Limit: 10, N: 6}
			_, _, err = limiter.TakeAll(t.Context(), same, same)
			require.ErrorAs(t, err, &cost, "twice 6 is more than 10")
			ok, _, err = limiter.TakeAll(t.Context())
			require.NoError(t, err)
			require.True(t, ok)
			many := make([]throttr.Limit, 20)
			for i := range many {
				many[i] = throttr.Limit{Key: string(rune('a' + i)), Scale: time.Minute, Limit: 1, N: 1}
			}
			for want := range 2 {
				ok, results, err = limiter.TakeAll(t.Context(), many...)
				require.NoError(t, err)
				require.Len(t, results, 20)
				require.Equal(t, want == 0, ok)
			}
		})
	}
}

func TestPeekTakesNothing(t *testing.T) {
	b, _ := newMemory(t)
	limiter := throttr.NewRateLimit(b)
	res, err := limiter.Peek(t.Context(), "k", time.Minute, 10, 3)
	require.NoError(t, err)
	require.Equal(t, throttr.Result{Allowed: true, Limit: 10, Remaining: 10}, res)
	require.Zero(t, b.Len())
	_, err = limiter.Take(t.Context(), "k", time.Minute, 10, 8)
	require.NoError(t, err)
	for n := range uint64(11) {
		want, err := limiter.Peek(t.Context(), "k", time.Minute, 10, n)
		require.NoError(t, err)
		require.Equal(t, n <= 2, want.Allowed)
		require.EqualValues(t, 2, want.Remaining)
	}
	var cost *throttr.CostError
	_, err = limiter.Peek(t.Context(), "k", time.Minute, 10, 11)
	require.ErrorAs(t, err, &cost)
}

// A sum over the largest uint64 is over every limit.
func TestSumOfTakesThatIsTooLargeIsACostError(t *testing.T) {
	b, _ := newMemory(t)
	srv := mockserver.RunT(t, mockserver.WithValueSize(8))
	for _, b := range []throttr.Backend{b, openURL(t, "throttr://"+srv.Addr())} {
		limits := []throttr.Limit{
			{Key: "k", Scale: time.Minute, Limit: math.MaxUint64, N: math.MaxUint64},
			{Key: "k", Scale: time.Minute, Limit: math.MaxUint64, N: 1},
		}
		granted, err := b.(window.Taker).TakeAll(t.Context(), limits, make([]throttr.Window, 2))
		require.False(t, granted && err == nil)
		for _, opts := range [][]throttr.Option{nil, {throttr.WithObserver(throttr.ObserverFunc(func(context.Context, throttr.Event) {}))}} {
			var cost *throttr.CostError
			_, _, err = throttr.NewRateLimit(b, opts...).TakeAll(t.Context(), limits...)
			require.ErrorAs(t, err, &cost)
			require.EqualValues(t, uint64(math.MaxUint64), cost.N)
		}
		w, err := b.Get(t.Context(), "k", time.Minute)
		require.NoError(t, err)
		require.Zero(t, w.Count)
	}
}

// plainBackend hides that a backend can take.
type plainBackend struct{ throttr.Backend }

func TestBackendsThatCannotTake(t *testing.T) {
	b, _ := newMemory(t)
	limiter := throttr.NewRateLimit(plainBackend{b}, throttr.WithFallback(b), throttr.WithPolicy(throttr.AllowHits),
		throttr.WithObserver(throttr.ObserverFunc(func(_ context.Context, e throttr.Event) {
			t.Errorf("event %v of a mistake in the program", e.Kind)
		})))
	limit := throttr.Limit{Key: "k", Scale: time.Minute, Limit: 10, N: 1}
	_, err := limiter.Take(t.Context(), "k", time.Minute, 10, 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, _, err = limiter.TakeAll(t.Context(), limit)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = limiter.Reserve(t.Context(), limit)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = limiter.Wait(t.Context(), "k", time.Minute, 10, 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Zero(t, b.Len(), "nothing is counted instead")
	_, err = limiter.Peek(t.Context(), "k", time.Minute, 10, 1)
	require.NoError(t, err)
}

func TestPoliciesDecideOnTakes(t *testing.T) {
	down := errors.New("down")
	b, _ := newMemory(t)
	broken := &failingTakes{Backend: b, err: down}
	take := func(opts ...throttr.Option) (throttr.Result, error) {
		return throttr.NewRateLimit(broken, opts...).Take(t.Context(), "k", time.Hour, 10, 3)
	}
	_, err := take()
	require.ErrorIs(t, err, down)
	res, err := take(throttr.WithPolicy(throttr.AllowHits))
	require.NoError(t, err)
	require.Equal(t, throttr.Result{Allowed: true, Limit: 10, Degraded: true}, res)
	res, err = take(throttr.WithPolicy(throttr.DenyHits))
	require.NoError(t, err)
	require.False(t, res.Allowed)
	require.True(t, res.Degraded)
	require.Equal(t, time.Second, res.RetryAfter)
	fallback, _ := newMemory(t)
	res, err = take(throttr.WithFallback(fallback))
	require.NoError(t, err)
	require.True(t, res.Allowed && res.Degraded)
	require.EqualValues(t, 7, res.Remaining)

	// A fallback that can't take is no help; the policy decides.
	res, err = take(throttr.WithFallback(plainBackend{fallback}), throttr.WithPolicy(throttr.AllowHits))
	require.NoError(t, err)
	require.True(t, res.Allowed && res.Degraded)
	require.Zero(t, res.Count)
	_, err = take(throttr.WithFallback(plainBackend{fallback}))
	require.ErrorIs(t, err, down)
}

func reserve(t *testing.T, limiter *throttr.RateLimit, limits ...throttr.Limit) *throttr.Reservation {
	t.Helper()
	rv, err := limiter.Reserve(t.Context(), limits...)
	require.NoError(t, err)
	require.True(t, rv.OK())
	require.Len(t, rv.Results(), len(limits))
	return rv
}

func count(t *testing.T, limiter *throttr.RateLimit, key string, scale time.Duration) uint64 {
	t.Helper()
	n, err := limiter.Get(t.Context(), key, scale)
	require.NoError(t, err)
	return n
}

func TestReservationIsSettledWithWhatWasUsed(t *testing.T) {
	for name, limiter := range limiters(t) {
		t.Run(name, func(t *testing.T) {
			tokens := throttr.Limit{Key: "tokens", Scale: time.Minute, Limit: 1000, N: 700}
			requests := throttr.Limit{Key: "requests", Scale: time.Second, Limit: 5, N: 1}
			rv := reserve(t, limiter, tokens, requests)
			refused, err := limiter.Reserve(t.Context(), tokens, requests)
			require.NoError(t, err)
			require.False(t, refused.OK())
			require.False(t, refused.Results()[0].Allowed)
			require.NoError(t, refused.Commit(t.Context(), 5, 5))
			require.NoError(t, refused.Cancel(t.Context()))
			require.NoError(t, rv.Commit(t.Context(), 100, 1))
			require.NoError(t, rv.Commit(t.Context(), 1, 0), "the second one does nothing")
			require.NoError(t, rv.Cancel(t.Context()))
			require.EqualValues(t, 100, count(t, limiter, "tokens", time.Minute))
			require.EqualValues(t, 1, count(t, limiter, "requests", time.Second))

			require.NoError(t, reserve(t, limiter, tokens).Cancel(t.Context()))
			require.EqualValues(t, 100, count(t, limiter, "tokens", time.Minute))
			require.NoError(t, reserve(t, limiter, tokens).Commit(t.Context()), "all of it was used")
			require.EqualValues(t, 800, count(t, limiter, "tokens", time.Minute))
			require.NoError(t, reserve(t, limiter, throttr.Limit{Key: "tokens", Scale: time.Minute, Limit: 1000, N: 10}).Commit(t.Context(), 400))
			require.EqualValues(t, 1200, count(t, limiter, "tokens", time.Minute), "an overrun counts beyond the limit")
		})
	}
}

func TestReservationIsSettledInItsOwnWindow(t *testing.T) {
	b, clock := newMemory(t)
	limiter := throttr.NewRateLimit(b)
	limit := throttr.Limit{Key: "k", Scale: time.Minute, Limit: 10, N: 8}
	for name, next := range map[string]func(){
		"end":   func() { clock.Advance(time.Minute) },
		"reset": func() { require.NoError(t, limiter.Reset(t.Context(), "k", time.Minute)) },
		"set": func() {
			_, err := limiter.Set(t.Context(), "k", time.Minute, 0)
			require.NoError(t, err)
		},
	} {
		early := reserve(t, limiter, limit)
		over := reserve(t, limiter, throttr.Limit{Key: "k", Scale: time.Minute, Limit: 10, N: 2})
		next()
		late := reserve(t, limiter, limit)
		require.NoError(t, early.Cancel(t.Context()))
		require.EqualValues(t, 8, count(t, limiter, "k", time.Minute), name)
		require.NoError(t, over.Commit(t.Context(), 3))
		require.EqualValues(t, 9, count(t, limiter, "k", time.Minute), "an overrun counts in the window that is open")
		require.NoError(t, late.Cancel(t.Context()))
		require.EqualValues(t, 1, count(t, limiter, "k", time.Minute), name)
		clock.Advance(time.Hour)
	}
}

// The context of a request has often ended when it is settled.
func TestReservationIsSettledAfterItsContextHasEnded(t *testing.T) {
	for name, limiter := range limiters(t) {
		ctx, cancel := context.WithCancel(t.Context())
		rv, err := limiter.Reserve(ctx, throttr.Limit{Key: "k", Scale: time.Minute, Limit: 10, N: 8})
		require.NoError(t, err)
		cancel()
		require.NoError(t, rv.Cancel(ctx))
		require.Zero(t, count(t, limiter, "k", time.Minute), name)
	}
}

func TestReservationIsSettledWithTheBackendThatGrantedIt(t *testing.T) {
	b, _ := newMemory(t)
	fallback, _ := newMemory(t)
	broken := &failingTakes{Backend: b, err: errors.New("down")}
	limit := throttr.Limit{Key: "k", Scale: time.Minute, Limit: 10, N: 8}
	limiter := throttr.NewRateLimit(broken, throttr.WithFallback(fallback), throttr.WithPolicy(throttr.AllowHits))
	second := throttr.NewRateLimit(fallback)
	rv := reserve(t, limiter, limit)
	require.True(t, rv.Results()[0].Degraded)
	broken.fail(nil) // it works again
	own := reserve(t, limiter, limit)
	require.NoError(t, rv.Commit(t.Context(), 9))
	require.EqualValues(t, 9, count(t, second, "k", time.Minute))
	require.EqualValues(t, 8, count(t, limiter, "k", time.Minute))
	require.NoError(t, own.Cancel(t.Context()))
	require.Zero(t, count(t, limiter, "k", time.Minute))

	policy := throttr.NewRateLimit(&failingTakes{Backend: b, err: errors.New("down")}, throttr.WithPolicy(throttr.AllowHits))
	rv = reserve(t, policy, limit)
	require.NoError(t, rv.Commit(t.Context(), 100))
	require.Zero(t, count(t, limiter, "k", time.Minute), "what a policy allows is counted nowhere")
}

func TestReservationIsSettledOnceByManyGoroutines(t *testing.T) {
	b, _ := newMemory(t)
	limiter := throttr.NewRateLimit(b)
	for range 100 {
		reserve(t, limiter, throttr.Limit{Key: "k", Scale: time.Minute, Limit: 1000, N: 1})
		rv := reserve(t, limiter, throttr.Limit{Key: "k", Scale: time.Minute, Limit: 1000, N: 5})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := rv.Cancel(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	require.EqualValues(t, 100, count(t, limiter, "k", time.Minute))
}

// lossy is a backend that loses the answers of give-backs.
type lossy struct {
	*memory.Backend
	calls int
	done  bool // the give-back is made all the same
}

func (l *lossy) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (bool, error) {
	l.calls++
	if l.done {
		_, _ = l.Backend.GiveBack(ctx, key, scale, id, n)
	}
	return false, errors.New("no answer")
}

func TestGiveBackOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	for _, done := range []bool{false, true} {
		b, _ := newMemory(t)
		l := &lossy{Backend: b, done: done}
		limiter := throttr.NewRateLimit(l)
		rv := reserve(t, limiter, throttr.Limit{Key: "k", Scale: time.Minute, Limit: 10, N: 8})
		require.Error(t, rv.Cancel(t.Context()))
		require.NoError(t, rv.Cancel(t.Context()))
		require.NoError(t, rv.Commit(t.Context(), 0))
		require.Equal(t, 1, l.calls)
		require.EqualValues(t, map[bool]uint64{false: 8, true: 0}[done], count(t, limiter, "k", time.Minute))
	}
}

// Many estimates, of which the actual costs differ: what is in flight and what was used never exceeds
// the limit.
//
//evidence:takes Reserving estimates and settling actual costs overspends nothing
func TestEstimatesThatAreSettledOverspendNothing(t *testing.T) {
	b, clock := newMemory(t)
	limiter := throttr.NewRateLimit(b)
	const limit = 100
	var mu sync.Mutex // guards spent
	spent := map[int64]uint64{}
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			for range 300 {
				estimate := 1 + random.Uint64N(40)
				actual := random.Uint64N(estimate + 1)
				w, err := limiter.Reserve(t.Context(), throttr.Limit{Key: "tokens", Scale: time.Minute, Limit: limit, N: estimate})
				if err != nil {
					t.Error(err)
					return
				}
				if !w.OK() {
					if random.IntN(20) == 0 {
						clock.Advance(10 * time.Second)
					}
					continue
				}
				end := w.Results()[0].ResetAt.UnixNano()
				if err := w.Commit(t.Context(), actual); err != nil {
					t.Error(err)
				}
				mu.Lock()
				spent[end] += actual
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Greater(t, len(spent), 5)
	full := 0
	for _, n := range spent {
		require.LessOrEqual(t, n, uint64(limit), "overspend")
		if n > limit/2 {
			full++
		}
	}
	require.Positive(t, full)
}

func TestObserverSeesTakes(t *testing.T) {
	b, _ := newMemory(t)
	var events []throttr.Event
	limiter := throttr.NewRateLimit(b, throttr.WithObserver(throttr.ObserverFunc(func(_ context.Context, e throttr.Event) {
		e.Duration, e.Result.ResetAfter, e.Result.ResetAt = 0, 0, time.Time{}
		events = append(events, e)
	})))
	wide := throttr.Limit{Key: "wide", Scale: time.Hour, Limit: 100, N: 2}
	narrow := throttr.Limit{Key: "narrow", Scale: time.Second, Limit: 5, N: 5}
	rv := reserve(t, limiter, wide, narrow)
	_, _, err := limiter.TakeAll(t.Context(), wide, narrow)
	require.NoError(t, err)
	require.NoError(t, rv.Commit(t.Context(), 2, 1))
	_, err = limiter.Take(t.Context(), "wide", time.Hour, 100, 1)
	require.NoError(t, err)
	_, err = limiter.Wait(t.Context(), "narrow", time.Second, 5, 1)
	require.NoError(t, err)
	_, err = limiter.Take(t.Context(), "narrow", time.Second, 5, 6)
	require.Error(t, err)
	event := func(kind throttr.EventKind, l throttr.Limit, n uint64, res throttr.Result) throttr.Event {
		res.Limit = l.Limit
		return throttr.Event{Kind: kind, Key: l.Key, Scale: l.Scale, Increment: n, Take: true, Result: res}
	}
	settled := func(l throttr.Limit, n uint64) throttr.Event {
		e := event(throttr.EventSettled, l, n, throttr.Result{})
		e.Reserved = l.N
		return e
	}
	waited := event(throttr.EventAllowed, narrow, 1, throttr.Result{Allowed: true, Count: 2, Remaining: 3})
	waited.Waited = true
	costs := event(throttr.EventDenied, narrow, 6, throttr.Result{})
	costs.Err = err
	require.Equal(t, []throttr.Event{
		event(throttr.EventAllowed, wide, 2, throttr.Result{Allowed: true, Count: 2, Remaining: 98}),
		event(throttr.EventAllowed, narrow, 5, throttr.Result{Allowed: true, Count: 5}),
		event(throttr.EventDenied, narrow, 5, throttr.Result{Count: 5, RetryAfter: time.Second}),
		settled(wide, 2), settled(narrow, 1),
		event(throttr.EventAllowed, wide, 1, throttr.Result{Allowed: true, Count: 3, Remaining: 97}),
		waited, costs,
	}, events)
}

var _ window.Taker = (*failingTakes)(nil)

func TestOpenBackendTakesIfWhatItHasOpenedDoes(t *testing.T) {
	b, err := throttr.Open(t.Context(), "memory://")
	require.NoError(t, err)
	defer b.Close()
	limits := []throttr.Limit{{Key: "k", Scale: time.Minute, Limit: 10, N: 3}, {Key: "l", Scale: time.Minute, Limit: 10, N: 3}}
	for _, opts := range [][]throttr.Option{nil, {throttr.WithTimeout(time.Minute)}} { // direct, and through the interface
		limiter := throttr.NewRateLimit(b, opts...)
		res, err := limiter.Take(t.Context(), "k", time.Minute, 10, 1)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.NoError(t, reserve(t, limiter, limits...).Commit(t.Context(), 1, 1))
	}
	require.EqualValues(t, 4, count(t, throttr.NewRateLimit(b), "k", time.Minute))

	srv := mockserver.RunT(t)
	servers, err := throttr.Open(t.Context(), "throttr://"+srv.Addr())
	require.NoError(t, err)
	defer servers.Close()
	require.NoError(t, reserve(t, throttr.NewRateLimit(servers), limits...).Commit(t.Context(), 1, 1))
	lazy, err := throttr.Open(t.Context(), "throttr://127.0.0.1:1?lazy=true")
	require.NoError(t, err)
	defer lazy.Close()
	rv, err := throttr.NewRateLimit(lazy, throttr.WithPolicy(throttr.AllowHits)).Reserve(t.Context(), limits...)
	require.NoError(t, err)
	require.True(t, rv.OK() && rv.Results()[0].Degraded)
	require.NoError(t, rv.Cancel(t.Context()))
}

func TestLogOfTakes(t *testing.T) {
	b, _ := newMemory(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" {
			return slog.Attr{}
		}
		return a
	}}))
	limiter := throttr.NewRateLimit(&lossy{Backend: b}, throttr.WithObserver(throttr.LogTo(logger)))
	limit := throttr.Limit{Key: "k", Scale: time.Minute, Limit: 5, N: 4, Name: "tokens"}
	rv := reserve(t, limiter, limit)
	_, err := limiter.Take(t.Context(), "k", time.Minute, 5, 2)
	require.NoError(t, err)
	require.NoError(t, rv.Commit(t.Context(), 5))
	_, err = limiter.Wait(t.Context(), "w", time.Minute, 5, 1)
	require.NoError(t, err)
	require.Error(t, reserve(t, limiter, throttr.Limit{Key: "x", Scale: time.Minute, Limit: 5, N: 4}).Cancel(t.Context()))
	require.Equal(t, `level=DEBUG msg="rate limit: allowed" limit_name=tokens key=k scale=1m0s limit=5 increment=4 take=true count=4
level=INFO msg="rate limit: denied" key=k scale=1m0s limit=5 increment=2 take=true count=4 retry_after=1m0s
level=DEBUG msg="rate limit: settled" limit_name=tokens key=k scale=1m0s limit=5 increment=5 reserved=4
level=DEBUG msg="rate limit: allowed" key=w scale=1m0s limit=5 increment=1 waited=true count=1
level=DEBUG msg="rate limit: allowed" key=x scale=1m0s limit=5 increment=4 take=true count=4
level=WARN msg="rate limit: settled" key=x scale=1m0s limit=5 increment=0 reserved=4 error="no answer"
`, log.String())
}

func TestEntitiesTakeAndWait(t *testing.T) {
	b, clock := newMemory(t)
	var events []throttr.Event
	entities := throttr.NewEntities(throttr.NewRateLimit(b, throttr.WithObserver(throttr.ObserverFunc(func(_ context.Context, e throttr.Event) {
		events = append(events, e)
	}))))
	metadata := map[string]any{"plan": "free"}
	reserve := func(cost uint64) (*throttr.Reservation, error) {
		return entities.Reserve(t.Context(), "acme", "tokens", 100, time.Minute, cost, metadata)
	}
	rv, err := reserve(80)
	require.NoError(t, err)
	require.True(t, rv.OK())
	_, err = reserve(30)
	var denied *throttr.RateLimitError
	require.ErrorAs(t, err, &denied)
	require.Equal(t, &throttr.RateLimitError{
		Entity: "acme", Operation: "tokens", Limit: 100, Window: time.Minute, Count: 80,
		RetryAfter: time.Minute, ResetAt: denied.ResetAt, Metadata: metadata,
	}, denied)
	var cost *throttr.CostError
	_, err = reserve(101)
	require.ErrorAs(t, err, &cost)
	metadata["plan"] = "changed"
	require.NoError(t, rv.Commit(t.Context(), 10))
	require.NoError(t, entities.Wait(t.Context(), "acme", "tokens", 100, time.Minute, 90, nil))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Second))
	defer cancel()
	var late *throttr.DeadlineError
	require.ErrorAs(t, entities.Wait(ctx, "acme", "tokens", 100, time.Minute, 1, nil), &late)
	var invalid *throttr.ValidationError
	require.ErrorAs(t, entities.Wait(ctx, "", "tokens", 100, time.Minute, 1, nil), &invalid)
	_, err = entities.Reserve(ctx, "acme", "", 100, time.Minute, 1, nil)
	require.ErrorAs(t, err, &invalid)
	clock.Advance(time.Minute)

	kinds := []throttr.EventKind{throttr.EventAllowed, throttr.EventDenied, throttr.EventDenied, throttr.EventSettled, throttr.EventAllowed, throttr.EventDenied}
	require.Len(t, events, len(kinds))
	for i, e := range events {
		require.Equal(t, kinds[i], e.Kind, i)
		require.Equal(t, "acme", e.Entity)
		require.Equal(t, "tokens", e.Operation)
	}
	require.Equal(t, "free", events[3].Metadata["plan"])
}
