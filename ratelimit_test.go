package throttr_test

import (
	"cmp"
	"context"
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
