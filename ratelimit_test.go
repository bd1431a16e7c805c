package throttr_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// What is wrong in the text of a program panics in the goroutine of the caller, which can recover from it.
func TestMistakesInCodePanicInTheCaller(t *testing.T) {
	var none context.Context
	for want, call := range map[string]func(){
		"throttr: Connect: ctx is nil":           func() { throttr.Connect[uint16](none, throttr.Config{}) },
		"throttr: Open: ctx is nil":              func() { throttr.Open(none, "memory://") },
		"throttr: OpenServers: ctx is nil":       func() { throttr.OpenServers(none, throttr.Config{}) },
		"throttr: OpenServers: option 1 is nil":  func() { throttr.OpenServers(t.Context(), throttr.Config{Lazy: true}, nil) },
		"throttr: NewRateLimit: backend is nil":  func() { throttr.NewRateLimit(nil) },
		"throttr: NewRateLimit: option 1 is nil": func() { throttr.NewRateLimit(inProcess(t), nil) },
		"throttr: NewRateLimit: option 2 is nil": func() {
			throttr.NewRateLimit(inProcess(t), throttr.WithPolicy(throttr.AllowHits), nil)
		},
		"throttr: WithObserver: the observer is nil": func() { throttr.WithObserver(nil) },
		"throttr: WithBreaker: -1 is negative":       func() { throttr.WithBreaker(-1, 0) },
		"throttr: WithBreaker: -1ns is negative":     func() { throttr.WithBreaker(0, -1) },
		"throttr: WithTimeout: -1ns is negative":     func() { throttr.WithTimeout(-1) },
		"throttr: WithProcesses: -2 is negative":     func() { throttr.WithProcesses(-2) },
		"throttr: WithMaxWaiters: -1 is negative":    func() { throttr.WithMaxWaiters(-1) },

		"throttr: WithAlgorithm: algorithm 99 is no algorithm for limits with a Scale":    func() { throttr.WithAlgorithm(99) },
		"throttr: WithAlgorithm: calendar-window is no algorithm for limits with a Scale": func() { throttr.WithAlgorithm(throttr.CalendarWindow) },
	} {
		require.PanicsWithValue(t, want, call)
	}
}

// Every option takes any number that is not negative. 0 is the default.
func TestOptionsAreTriedAtTheirBounds(t *testing.T) {
	options := map[string][]throttr.Option{}
	for _, n := range []int{0, 1, math.MaxInt} {
		d := time.Duration(n)
		options[fmt.Sprint("timeout ", n)] = []throttr.Option{throttr.WithTimeout(d)}
		options[fmt.Sprint("failures ", n)] = []throttr.Option{throttr.WithBreaker(n, 0)}
		options[fmt.Sprint("pause ", n)] = []throttr.Option{throttr.WithBreaker(1, d)}
		options[fmt.Sprint("processes ", n)] = []throttr.Option{throttr.WithProcesses(n)}
		options[fmt.Sprint("waiters ", n)] = []throttr.Option{throttr.WithMaxWaiters(n)}
	}
	limit := throttr.Limit{Max: 100, Scale: time.Minute, Burst: 50, Algorithm: throttr.TokenBucket}
	for name, opts := range options {
		synctest.Test(t, func(t *testing.T) {
			store := newDistant(t)
			fallback := memory.New(memory.WithClock(time.Now))
			defer fallback.Close()
			limiter := throttr.NewRateLimit(store, append(opts, throttr.WithLogger(nil), throttr.WithFallback(fallback))...)
			for i := range 10 {
				if i == 5 {
					store.be(isDown)
				}
				res, err := limiter.Take(t.Context(), "k", limit, 1)
				require.NoError(t, err, name)
				require.Equal(t, i < 5 || i == 5 || name != "processes "+strconv.Itoa(math.MaxInt), res.Allowed, "%s: take %d", name, i)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = limiter.Wait(ctx, "w", limit, 1)
				cancel()
				require.Equal(t, i < 6 || name != "processes "+strconv.Itoa(math.MaxInt), err == nil, "%s: wait %d: %v", name, i, err)
			}
			store.be(nil)
			time.Sleep(time.Hour)
		})
	}
}

// A customer whose plan became unlimited, and falls back, does not find what was counted before: also with a bucket,
// whose burst is too large for the Max that Forget has in place of Unlimited, and on a server, which can't keep
// Unlimited.
func TestForgetNeedsNoMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory := throttr.NewRateLimit(inProcess(t))
		for name, c := range map[string]struct {
			limiter *throttr.RateLimit
			limit   throttr.Limit
		}{
			"memory": {inMemory, throttr.Limit{Max: 1, Scale: time.Hour}},
			"bucket": {inMemory, throttr.Limit{Max: 1_000_000, Scale: 24 * time.Hour, Burst: 100_000, Algorithm: throttr.TokenBucket}},
			"server": {testkit.Limiter[uint16](t, testkit.InMemory(t)), throttr.Limit{Max: 1000, Scale: time.Hour}},
		} {
			most := cmp.Or(c.limit.Burst, c.limit.Max)
			raised := c.limit
			raised.Max = throttr.Unlimited
			require.NoError(t, c.limiter.Check(raised), name)
			for range 2 {
				res := decided(t)(c.limiter.Take(t.Context(), "k", c.limit, most))
				require.True(t, res.Allowed, name)
				require.NoError(t, c.limiter.Forget(t.Context(), "k", raised), name)
			}
		}
	})
}

// A store that hangs holds up Forget for a while only, also if the caller's ctx has no end, and the fallback forgets.
// What the fallback could not forget is an error, as it would count in the next outage.
func TestForgetIsBoundedAndTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, fallback := newDistant(t), newDistant(t)
		limiter := throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithProcesses(2), throttr.WithLogger(nil))
		limit := throttr.Limit{Max: 4, Scale: time.Hour}
		var most uint64
		fallback.be(func(_ context.Context, c call) error { most = c.limit.Max; return nil })
		store.be(hangs)
		begun := time.Now()
		err := limiter.Forget(context.Background(), "k", limit)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.EqualValues(t, 2, most)

		store.be(nil)
		require.NoError(t, limiter.Forget(t.Context(), "k", limit))
		fallback.be(fails(errDown))
		require.ErrorIs(t, limiter.Forget(t.Context(), "k", limit), errDown)
	})
}

func TestKeysOfSeveralPartsAreNeverTheSame(t *testing.T) {
	require.Equal(t, "user:42", throttr.Key("user", "42"))
	require.Equal(t, `user:42:ip:2001\:db8\:\:1`, throttr.Key("user", "42", "ip", "2001:db8::1"))
	parts := []string{"", "a", ":", `\`, `\:`, `:\`, "a:", ":a", "\x00", "\xff"}
	seen := map[string][]string{}
	var all func(prefix []string, more int)
	all = func(prefix []string, more int) {
		if len(prefix) > 0 {
			key := throttr.Key(prefix...)
			if other, ok := seen[key]; ok {
				t.Fatalf("%q has the key of %q", prefix, other)
			}
			seen[key] = prefix
		}
		if more > 0 {
			for _, p := range parts {
				all(append(prefix[:len(prefix):len(prefix)], p), more-1)
			}
		}
	}
	all(nil, 4)
	require.Len(t, seen, 10+100+1000+10000)
	require.Zero(t, testing.AllocsPerRun(100, func() { throttr.Key("user") }))
}

// berlinMonth is a limit for months of Berlin.
var berlinMonth = throttr.Limit{Name: "quota", Max: 1000, Calendar: throttr.Month, Zone: "Europe/Berlin", StartDay: 17}

// The month from 17 March to 17 April has an hour less than its days.
func TestCallsOfACalendarLimitAreOfOneWindow(t *testing.T) {
	store, clock := newMemory(t)
	clock.Advance(time.Date(2018, 3, 16, 23, 0, 0, 0, time.UTC).Sub(clock.Now()))
	l := throttr.NewRateLimit(store, throttr.WithAlgorithm(throttr.TokenBucket))
	end := time.Date(2018, 4, 16, 22, 0, 0, 0, time.UTC)
	for count := uint64(1); ; clock.Advance(24 * time.Hour) {
		for call, decide := range decisions {
			res := decided(t)(decide(t.Context(), l, berlinMonth, 1))
			if !clock.Now().Before(end) {
				require.Equal(t, 30*24*time.Hour, res.ResetAfter.Round(24*time.Hour), "the next month")
				return
			}
			require.True(t, res.Allowed)
			require.Equal(t, count, res.Count, call)
			require.Equal(t, end.Sub(clock.Now()), res.ResetAfter)
			require.True(t, end.Equal(res.ResetAt), "%v", res.ResetAt)
			count++
		}
	}
}

// A caller waits until the window of its turn begins. The length of a day in which clocks change is its own: it has
// 23 hours, also if the clock of the store is ahead.
func TestWaitersInADayOf23HoursWaitForItsEnd(t *testing.T) {
	for _, ahead := range []time.Duration{0, 30 * time.Minute} {
		synctest.Test(t, func(t *testing.T) { waitInADayOf23Hours(t, ahead) })
	}
}

func waitInADayOf23Hours(t *testing.T, ahead time.Duration) {
	time.Sleep(time.Until(time.Date(2000, 3, 25, 22, 0, 0, 0, time.UTC)))
	clock := func() time.Time { return time.Now().Add(ahead) }
	l := throttr.NewRateLimit(inProcess(t, memory.WithClock(clock), memory.WithCleanPeriod(24*time.Hour)))
	limit := throttr.Limit{Max: 1, Calendar: throttr.Day, Zone: "Europe/Berlin"}
	decided(t)(l.Take(t.Context(), "k", limit, 1))
	midnights := []time.Time{time.Date(2000, 3, 25, 23, 0, 0, 0, time.UTC), time.Date(2000, 3, 26, 22, 0, 0, 0, time.UTC)}
	got := make(chan time.Time, 1)
	for i, midnight := range midnights {
		midnight = midnight.Add(-ahead)
		begun := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), midnight.Add(-time.Minute))
		defer cancel()
		_, err := l.Wait(ctx, "k", limit, 1)
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, begun, time.Now(), "at once")
		require.WithinDuration(t, midnight, late.At, time.Second)
		ctx, cancel = context.WithDeadline(t.Context(), midnight.Add(time.Minute))
		defer cancel()
		if i == 0 {
			go func() {
				decided(t)(l.Wait(ctx, "k", limit, 1))
				got <- time.Now()
			}()
			synctest.Wait()
			continue
		}
		decided(t)(l.Wait(ctx, "k", limit, 1))
		require.WithinDuration(t, midnight, time.Now(), time.Second)
	}
	require.WithinDuration(t, midnights[0].Add(-ahead), <-got, time.Second)
}

// everyCall returns the errors of all calls with a limit.
func everyCall(ctx context.Context, l *throttr.RateLimit, limit throttr.Limit) map[string]error {
	errs := map[string]error{"Check": l.Check(limit), "Forget": l.Forget(ctx, "k", limit)}
	for call, decide := range withPeek() {
		_, errs[call] = decide(ctx, l, limit, 1)
	}
	_, _, errs["take of two"] = l.TakeAll(ctx, limit.For("k", 1), limit.For("l", 1))
	return errs
}

// everyCallOfAScale returns the errors of all calls that have a scale in place of a limit.
func everyCallOfAScale(ctx context.Context, l *throttr.RateLimit, scale time.Duration) map[string]error {
	errs := map[string]error{"Reset": l.Reset(ctx, "k", scale)}
	_, errs["Hit"] = l.Hit(ctx, "k", scale, 5)
	_, errs["Inc"] = l.Inc(ctx, "k", scale, 1)
	_, errs["Get"] = l.Get(ctx, "k", scale)
	_, errs["Set"] = l.Set(ctx, "k", scale, 1)
	_, errs["ExpiresAt"] = l.ExpiresAt(ctx, "k", scale)
	return errs
}

// withoutTakes is a backend that keeps any limit, and leaves all calls to [window.Unimplemented].
type withoutTakes struct{ window.Unimplemented }

func (withoutTakes) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

// A mistake is an error of every call, whatever the policy and the backend are. The backend is not asked.
func TestAMistakeIsAnErrorOfEveryCall(t *testing.T) {
	policies := []throttr.Option{throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(inProcess(t))}
	for _, backend := range []throttr.Backend{inProcess(t), withoutTakes{}} {
		l := throttr.NewRateLimit(backend, policies...)
		for field, limit := range map[string]throttr.Limit{
			"Calendar":  {Max: 5, Scale: time.Minute, Algorithm: throttr.CalendarWindow},
			"Scale":     {Max: 5, Scale: time.Minute, Calendar: throttr.Month},
			"Algorithm": {Max: 5, Calendar: throttr.Month, Algorithm: throttr.TokenBucket},
			"StartDay":  {Max: throttr.Unlimited, Scale: time.Minute, StartDay: 2},
			"Zone":      {Max: 0, Calendar: throttr.Day, Zone: "Local"},
		} {
			for call, err := range everyCall(t.Context(), l, limit) {
				var e *throttr.RangeError
				require.ErrorAs(t, err, &e, "%s of %v", call, limit)
				require.Equal(t, field, e.Field, call)
			}
		}
		for _, scale := range []time.Duration{-time.Second, 0, 60, window.MinScale - 1} {
			for _, errs := range []map[string]error{everyCall(t.Context(), l, throttr.Limit{Max: 5, Scale: scale}), everyCallOfAScale(t.Context(), l, scale)} {
				for call, err := range errs {
					require.ErrorIs(t, err, throttr.ErrScale, "%s of %v", call, scale)
					require.ErrorContains(t, err, "did you forget the unit?")
				}
			}
			_, err := l.Delete(t.Context(), "k", time.Hour, scale)
			require.ErrorIs(t, err, throttr.ErrScale)
		}
		for call, err := range everyCall(t.Context(), l, throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: 99}) {
			require.ErrorIs(t, err, throttr.ErrUnsupported, call)
		}
	}
	for call, err := range everyCall(t.Context(), throttr.NewRateLimit(withoutTakes{}, policies...), throttr.Limit{Max: 5, Scale: time.Minute}) {
		if call != "Check" {
			require.ErrorIs(t, err, throttr.ErrUnsupported, "%s: no policy grants what a backend does not have", call)
		}
	}
	for call, err := range everyCallOfAScale(t.Context(), throttr.NewRateLimit(inProcess(t)), window.MinScale) {
		require.NoError(t, err, call)
	}
}

// Throttr servers keep fixed windows alone, whether they are there or not. The error names what they keep.
func TestAlgorithmsThatServersCannotKeepAreMistakes(t *testing.T) {
	for _, away := range []bool{false, true} {
		srv := testkit.InMemory(t)
		srv.Refuse(away)
		cfg := testkit.Over(srv, throttr.Config{Lazy: away})
		client, err := throttr.Connect[uint16](t.Context(), cfg)
		require.NoError(t, err)
		defer client.Close()
		opened, err := throttr.OpenServers(t.Context(), cfg)
		require.NoError(t, err)
		defer opened.Close()
		for _, b := range []throttr.Backend{client.Backend(), opened} {
			for name, opts := range policies(t) {
				for _, a := range []throttr.Algorithm{throttr.AlignedWindow, throttr.SlidingWindow, throttr.SlidingLog, throttr.TokenBucket} {
					l := throttr.NewRateLimit(b, append(opts, throttr.WithAlgorithm(a))...)
					for _, errs := range []map[string]error{everyCall(t.Context(), l, throttr.Limit{Max: 5, Scale: time.Minute}), everyCallOfAScale(t.Context(), l, time.Minute)} {
						for call, err := range errs {
							require.ErrorIs(t, err, throttr.ErrUnsupported, "%s, away: %v, %T, %s", call, away, b, name)
							require.ErrorContains(t, err, a.String(), call)
						}
					}
					require.ErrorContains(t, l.Check(throttr.Limit{Max: 5, Scale: time.Minute}), throttr.FixedWindow.String())
				}
			}
		}
	}
}

// What counts without a Max is unsupported.
func TestRollingCallsNeedAMax(t *testing.T) {
	for _, a := range []throttr.Algorithm{throttr.TokenBucket, throttr.SlidingWindow, throttr.SlidingLog} {
		limiter := throttr.NewRateLimit(inProcess(t), throttr.WithAlgorithm(a))
		for call, err := range everyCallOfAScale(t.Context(), limiter, time.Minute) {
			if call == "Hit" || call == "Reset" {
				require.NoError(t, err, call)
				continue
			}
			require.ErrorIs(t, err, throttr.ErrUnsupported, call)
		}
		for _, n := range []uint64{0, math.MaxUint64} {
			_, err := limiter.Inc(t.Context(), "k", time.Minute, n)
			require.ErrorIs(t, err, throttr.ErrUnsupported, "no number would do")
		}
	}
}

// Calls without a limit have no Max: a list keeps the one that a hit had.
func TestCallsWithoutALimitLeaveTheMaxThatIsListed(t *testing.T) {
	backend := inProcess(t)
	limiter := throttr.NewRateLimit(backend)
	_, err := limiter.Hit(t.Context(), "k", time.Minute, 100)
	require.NoError(t, err)
	for range 2 {
		_, err := limiter.Inc(t.Context(), "k", time.Minute, 1)
		require.NoError(t, err)
		listed, err := testkit.Collect(t, backend.List(t.Context()))
		require.NoError(t, err)
		require.EqualValues(t, 100, listed[0].Limit.Max)
		_, err = limiter.Set(t.Context(), "k", time.Minute, 1)
		require.NoError(t, err)
	}
}

// limits are some that a server of small values can't keep, and some that it can.
var limits = []struct {
	scale time.Duration
	limit uint64
}{
	{time.Minute, 100}, {time.Second, 191}, {time.Second, 192}, {time.Hour, 65471}, {time.Hour, 65472}, {time.Hour, 100_000},
	{90500 * time.Millisecond, 5}, {24*time.Hour + time.Second, 5}, {24 * time.Hour, 5}, {time.Minute, math.MaxUint64},
	{60, 5}, {0, 5}, {-time.Second, 5}, {time.Millisecond, 5},
}

// Check foretells what a hit returns.
func TestCheckRefusesWhatHitsRefuse(t *testing.T) {
	for _, size := range []int{0, 1, 2, 4, 8} {
		synctest.Test(t, func(t *testing.T) {
			b := throttr.Backend(inProcess(t, memory.WithClock(time.Now)))
			if size > 0 {
				srv := testkit.InMemory(t, mockserver.WithValueSize(size))
				opened := openOver(t, testkit.Over(srv, throttr.Config{Parking: throttr.ParkingAlways}))
				defer opened.Close()
				b = opened
			}
			l := throttr.NewRateLimit(b)
			for _, c := range limits {
				_, err := l.Hit(t.Context(), "k", c.scale, c.limit)
				checked := l.Check(throttr.Limit{Max: c.limit, Scale: c.scale})
				refused := errors.Is(err, throttr.ErrScale) || errors.Is(err, throttr.ErrRange)
				require.Equal(t, refused, checked != nil, "%d bytes, %d in %v: %v, but Check: %v", size, c.limit, c.scale, err, checked)
				_, err = b.Check(throttr.Limit{Max: 1, Scale: 60, Algorithm: throttr.FixedWindow})
				require.ErrorIs(t, err, throttr.ErrScale)
			}
		})
	}
}

func TestCheckKnowsTheFallbackToo(t *testing.T) {
	l := throttr.NewRateLimit(inProcess(t), throttr.WithFallback(openURL(t, "throttr://"+mockserver.RunT(t).Addr())))
	require.NoError(t, l.Check(throttr.Limit{Max: 1000, Scale: time.Hour}))
	require.ErrorIs(t, l.Check(throttr.Limit{Max: 100_000, Scale: time.Hour}), throttr.ErrRange)
}

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
