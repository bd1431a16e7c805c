package throttr_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
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
