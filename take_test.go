package throttr_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
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
			throttr.WithObserver(func(context.Context, throttr.Event) {})),
	}
}

func TestRefusedTakeCostsNothing(t *testing.T) {
	for name, limiter := range limiters(t) {
		t.Run(name, func(t *testing.T) {
			take := func(n uint64) throttr.Result {
				res, err := limiter.Take(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Minute}, n)
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
			res = take(11)
			require.Equal(t, throttr.Result{Limit: 10, RetryAfter: throttr.Never}, res, "more than the limit can hold")
			_, err := limiter.Take(t.Context(), "k", throttr.Limit{Max: 10, Scale: 60}, 1)
			require.ErrorIs(t, err, throttr.ErrScale)
		})
	}
}

func TestTakeAllTakesAllOrNone(t *testing.T) {
	for name, limiter := range limiters(t) {
		t.Run(name, func(t *testing.T) {
			limits := []throttr.Take{
				throttr.Limit{Max: 100, Scale: time.Minute}.For("wide", 1), throttr.Limit{Max: 1, Scale: time.Second}.For("narrow", 1),
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

			same := throttr.Limit{Max: 10, Scale: time.Minute}.For("same", 6)
			ok, results, err = limiter.TakeAll(t.Context(), same, same)
			require.NoError(t, err)
			require.False(t, ok, "twice 6 is more than 10")
			require.Equal(t, throttr.Never, results[1].RetryAfter)
			ok, _, err = limiter.TakeAll(t.Context())
			require.NoError(t, err)
			require.True(t, ok)
			many := make([]throttr.Take, 20)
			for i := range many {
				many[i] = throttr.Limit{Max: 1, Scale: time.Minute}.For(string(rune('a'+i)), 1)
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
	res, err := limiter.Peek(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Minute}, 3)
	require.NoError(t, err)
	require.Equal(t, throttr.Result{Allowed: true, Limit: 10, Remaining: 10}, res)
	require.Zero(t, b.Len())
	_, err = limiter.Take(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Minute}, 8)
	require.NoError(t, err)
	for n := range uint64(11) {
		want, err := limiter.Peek(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Minute}, n)
		require.NoError(t, err)
		require.Equal(t, n <= 2, want.Allowed)
		require.EqualValues(t, 2, want.Remaining)
	}
	res, err = limiter.Peek(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Minute}, 11)
	require.NoError(t, err)
	require.False(t, res.Allowed)
	require.Equal(t, throttr.Never, res.RetryAfter)
}

// The sum wraps to a number within the limit.
func TestSumOfTakesThatIsTooLargeIsDenied(t *testing.T) {
	b, _ := newMemory(t)
	srv := mockserver.RunT(t, mockserver.WithValueSize(8))
	for _, b := range []throttr.Backend{b, openURL(t, "throttr://"+srv.Addr())} {
		limit := throttr.Limit{Max: math.MaxInt64 - 1, Scale: time.Minute, Algorithm: throttr.FixedWindow}
		most := limit.For("k", math.MaxInt64-1)
		takes := []throttr.Take{most, most, most}
		granted, err := b.TakeAll(t.Context(), takes, make([]window.Window, 3))
		require.False(t, granted && err == nil)
		ok, results, err := throttr.NewRateLimit(b).TakeAll(t.Context(), takes...)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, throttr.Never, results[2].RetryAfter)
		w, err := b.Peek(t.Context(), "k", limit, 0)
		require.NoError(t, err)
		require.Zero(t, w.Count)
	}
}

// withoutTakes is a backend that leaves takes to [window.Unimplemented].
type withoutTakes struct{ window.Unimplemented }

func (withoutTakes) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func TestNoPolicyGrantsWhatABackendDoesNotHave(t *testing.T) {
	b, _ := newMemory(t)
	limiter := throttr.NewRateLimit(withoutTakes{}, throttr.WithFallback(b), throttr.WithPolicy(throttr.AllowHits))
	limit := throttr.Limit{Max: 10, Scale: time.Minute}
	for name, call := range map[string]func() error{
		"Hit":     func() error { _, err := limiter.Hit(t.Context(), "k", time.Minute, 10); return err },
		"Take":    func() error { _, err := limiter.Take(t.Context(), "k", limit, 1); return err },
		"TakeAll": func() error { _, _, err := limiter.TakeAll(t.Context(), limit.For("k", 1)); return err },
		"Reserve": func() error { _, _, err := limiter.Reserve(t.Context(), limit.For("k", 1)); return err },
		"Wait":    func() error { _, err := limiter.Wait(t.Context(), "k", limit, 1); return err },
		"Charge":  func() error { _, err := limiter.Charge(t.Context(), "k", limit, 1); return err },
		"Peek":    func() error { _, err := limiter.Peek(t.Context(), "k", limit, 1); return err },
	} {
		require.ErrorIs(t, call(), throttr.ErrUnsupported, name)
	}
	require.Zero(t, b.Len(), "nothing is counted instead")
}

func TestPoliciesDecideOnTakes(t *testing.T) {
	down := errors.New("down")
	b, _ := newMemory(t)
	broken := &failingTakes{Backend: b, err: down}
	take := func(opts ...throttr.Option) (throttr.Result, error) {
		return throttr.NewRateLimit(broken, opts...).Take(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Hour}, 3)
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

	unlimited := throttr.Limit{Name: "u", Max: throttr.Unlimited, Scale: time.Hour}
	ok, all, err := throttr.NewRateLimit(broken, throttr.WithPolicy(throttr.AllowHits)).TakeAll(t.Context(), unlimited.For("k", 1), throttr.Limit{Max: 10, Scale: time.Hour}.For("k", 3))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []bool{false, true}, []bool{all[0].Degraded, all[1].Degraded}, "no store is needed for the first")

	_, err = take(throttr.WithFallback(withoutTakes{}), throttr.WithPolicy(throttr.AllowHits))
	require.ErrorIs(t, err, throttr.ErrUnsupported, "a fallback without takes is a mistake")
	require.ErrorIs(t, err, down)
}

func reserve(t *testing.T, limiter *throttr.RateLimit, takes ...throttr.Take) *throttr.Reservation {
	t.Helper()
	rv, ok, err := limiter.Reserve(t.Context(), takes...)
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, rv.Results(), len(takes))
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
			tokens := throttr.Limit{Max: 1000, Scale: time.Minute}.For("tokens", 700)
			requests := throttr.Limit{Max: 5, Scale: time.Second}.For("requests", 1)
			rv := reserve(t, limiter, tokens, requests)
			refused, ok, err := limiter.Reserve(t.Context(), tokens, requests)
			require.NoError(t, err)
			require.False(t, ok)
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
			require.NoError(t, reserve(t, limiter, throttr.Limit{Max: 1000, Scale: time.Minute}.For("tokens", 10)).Commit(t.Context(), 400))
			require.EqualValues(t, 1200, count(t, limiter, "tokens", time.Minute), "an overrun counts beyond the limit")
		})
	}
}

// The context of a request has often ended when it is settled.
func TestReservationIsSettledAfterItsContextHasEnded(t *testing.T) {
	for name, limiter := range limiters(t) {
		ctx, cancel := context.WithCancel(t.Context())
		rv, _, err := limiter.Reserve(ctx, throttr.Limit{Max: 10, Scale: time.Minute}.For("k", 8))
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
	limit := throttr.Limit{Max: 10, Scale: time.Minute}.For("k", 8)
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
		reserve(t, limiter, throttr.Limit{Max: 1000, Scale: time.Minute}.For("k", 1))
		rv := reserve(t, limiter, throttr.Limit{Max: 1000, Scale: time.Minute}.For("k", 5))
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

func (l *lossy) GiveBack(ctx context.Context, key string, limit throttr.Limit, n uint64, id int64) (bool, error) {
	l.calls++
	if l.done {
		_, _ = l.Backend.GiveBack(ctx, key, limit, n, id)
	}
	return false, errors.New("no answer")
}

func TestGiveBackOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	for _, done := range []bool{false, true} {
		b, _ := newMemory(t)
		l := &lossy{Backend: b, done: done}
		limiter := throttr.NewRateLimit(l)
		rv := reserve(t, limiter, throttr.Limit{Max: 10, Scale: time.Minute}.For("k", 8))
		require.Error(t, rv.Cancel(t.Context()))
		require.NoError(t, rv.Cancel(t.Context()))
		require.NoError(t, rv.Commit(t.Context(), 0))
		require.Equal(t, 1, l.calls)
		require.EqualValues(t, map[bool]uint64{false: 8, true: 0}[done], count(t, limiter, "k", time.Minute))
	}
}

// Many estimates, of which the actual costs differ: what is in flight and what was used never exceeds
// the limit.
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
				rv, ok, err := limiter.Reserve(t.Context(), throttr.Limit{Max: limit, Scale: time.Minute}.For("tokens", estimate))
				if err != nil {
					t.Error(err)
					return
				}
				if !ok {
					if random.IntN(20) == 0 {
						clock.Advance(10 * time.Second)
					}
					continue
				}
				end := rv.Results()[0].ResetAt.UnixNano()
				if err := rv.Commit(t.Context(), actual); err != nil {
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
	limiter := throttr.NewRateLimit(b, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
		e.Duration, e.Result.ResetAfter, e.Result.ResetAt = 0, 0, time.Time{}
		events = append(events, e)
	}))
	wide := throttr.Limit{Name: "wide", Max: 100, Scale: time.Hour, Algorithm: throttr.FixedWindow}
	narrow := throttr.Limit{Name: "narrow", Max: 5, Scale: time.Second, Algorithm: throttr.FixedWindow}
	rv := reserve(t, limiter, wide.For("k", 2), narrow.For("k", 5))
	_, _, err := limiter.TakeAll(t.Context(), wide.For("k", 2), narrow.For("k", 5))
	require.NoError(t, err)
	require.NoError(t, rv.Commit(t.Context(), 2, 1))
	_, err = limiter.Take(t.Context(), "k", wide, 1)
	require.NoError(t, err)
	_, err = limiter.Wait(t.Context(), "k", narrow, 1)
	require.NoError(t, err)
	_, err = limiter.Take(t.Context(), "k", narrow, 6)
	require.NoError(t, err)
	_, err = limiter.Charge(t.Context(), "k", narrow, 9)
	require.NoError(t, err)
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

func TestEveryOpenedBackendTakes(t *testing.T) {
	limit := throttr.Limit{Max: 10, Scale: time.Minute}
	takes := []throttr.Take{limit.For("k", 3), limit.For("l", 3)}
	b := openURL(t, "memory://")
	for _, opts := range [][]throttr.Option{nil, {throttr.WithTimeout(time.Minute)}} { // direct, and through the interface
		limiter := throttr.NewRateLimit(b, opts...)
		res, err := limiter.Take(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.NoError(t, reserve(t, limiter, takes...).Commit(t.Context(), 1, 1))
	}
	require.EqualValues(t, 4, count(t, throttr.NewRateLimit(b), "k", time.Minute))

	srv := mockserver.RunT(t)
	servers := throttr.NewRateLimit(openURL(t, "throttr://"+srv.Addr()))
	require.NoError(t, reserve(t, servers, takes...).Commit(t.Context(), 1, 1))
	lazy := openURL(t, "throttr://127.0.0.1:1?lazy=true")
	rv := reserve(t, throttr.NewRateLimit(lazy, throttr.WithPolicy(throttr.AllowHits)), takes...)
	require.True(t, rv.Results()[0].Degraded)
	require.NoError(t, rv.Cancel(t.Context()))
}

// keeper is a backend that fails all calls of TakeAll, and still uses what the first one was given.
type keeper struct {
	throttr.Backend
	takes   []throttr.Take
	windows []window.Window // of the last call
}

func (k *keeper) TakeAll(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	if k.takes == nil {
		k.takes = takes
	}
	k.windows = windows
	return false, context.DeadlineExceeded
}

// during is a fallback that makes takes while the backend still writes the windows of its own.
type during struct {
	throttr.Backend
	late *keeper
}

func (d during) TakeAll(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	granted, err := d.Backend.TakeAll(ctx, takes, windows)
	for i := range d.late.windows {
		d.late.windows[i] = window.Window{Count: 99}
	}
	return granted, err
}

func TestABackendMayUseTheTakesOfACallThatHasFailed(t *testing.T) {
	k := &keeper{Backend: memory.New()}
	r := throttr.NewRateLimit(k, throttr.WithPolicy(throttr.AllowHits), throttr.WithBreaker(1000, 0))
	limit := throttr.Limit{Max: 10, Scale: time.Hour}
	longer := throttr.Limit{Max: 10, Scale: 2 * time.Hour}
	for i := range 100 {
		key := strconv.Itoa(i)
		ok, _, err := r.TakeAll(t.Context(), limit.For(key, 1), longer.For(key, 1))
		require.NoError(t, err)
		require.True(t, ok, "by the policy")
	}
	require.Equal(t, "0", k.takes[0].Key)

	r = throttr.NewRateLimit(k, throttr.WithFallback(during{memory.New(), k}), throttr.WithLogger(nil))
	_, results, err := r.TakeAll(t.Context(), limit.For("k", 1), longer.For("k", 2))
	require.NoError(t, err)
	require.EqualValues(t, 1, results[0].Count)
	require.EqualValues(t, 2, results[1].Count)
}
