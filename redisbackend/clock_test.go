package redisbackend_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// A window that starts a scale or more in the future is over, as it is in memory. To any other, a take that was made
// before the clock was set back can be given back.
func TestWindowsSurviveAClockThatGoesBack(t *testing.T) {
	each(t, func(t *testing.T, s *testkit.Redis, a window.Algorithm) {
		clock := backendtest.NewClock()
		begin := clock.Now()
		b := redisbackend.New(connect(t, s), rediswindow.WithClock(clock.Now))
		l := limitOf(a, time.Minute, 10)
		for _, back := range []time.Duration{time.Microsecond, time.Second, 59 * time.Second, time.Minute, 24 * time.Hour} {
			set(clock, begin)
			key := back.String()
			takes := func(room uint64) {
				t.Helper()
				last, more := must(t, b.Take, key, l, room), must(t, b.Take, key, l, 1)
				expect(t, !last.Refused && more.Refused, "%v back: not %d are granted: %+v, %+v", back, room, last, more)
			}
			first := must(t, b.Take, key, l, 5)
			takes(5)
			set(clock, begin.Add(-back))
			over := back >= time.Minute
			w := must(t, b.Peek, key, l, 1)
			expect(t, w.Refused == !over && (w.Count == 0) == over && (w.Left == 0) == over, "%v back: %+v", back, w)
			given, err := b.GiveBack(t.Context(), key, l, 5, first.ID)
			expect(t, given == !over && err == nil, "%v back: %v, %v", back, given, err)
			takes(map[bool]uint64{true: 10, false: 5}[over])
			clock.Advance(3 * time.Minute)
			takes(10)
		}
	})
}

// What the window before has counted weighs no more than when the present one began.
func TestWeightIsBoundedAfterAClockWentBack(t *testing.T) {
	clock := backendtest.NewClock()
	begin := clock.Now().Truncate(time.Minute)
	set(clock, begin)
	b := redisbackend.New(connect(t, testkit.StartRedis(t)), rediswindow.WithClock(clock.Now))
	l := limitOf(window.SlidingWindow, time.Minute, 10)
	must(t, b.Take, "k", l, 4)
	clock.Advance(time.Minute)
	must(t, b.Take, "k", l, 1)
	clock.Advance(-30 * time.Second)
	w := must(t, b.Peek, "k", l, 5)
	expect(t, w.Count == 5 && !w.Refused, "%+v", w)
}

// The test waits in real time, because the clock of the server is real. It is on the same machine.
func TestWindowsEndByTheClockOfTheServerAndAreRemoved(t *testing.T) {
	const scale = 200 * time.Millisecond
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	for _, a := range algorithms {
		var last window.Window
		for range 2 {
			before := time.Now().Truncate(time.Microsecond)
			w := must(t, b.Hit, "k", limitOf(a, scale, 1), 1)
			now := w.ExpiresAt.Add(-w.Left)
			expect(t, !now.Before(before) && !now.After(time.Now()), "%v: %+v at %v", a, w, before)
			expect(t, w.Count == 1 && !w.Refused && !now.Before(last.ExpiresAt), "%v: %+v follows on %+v", a, w, last)
			expect(t, a.Rolling() || w.Left <= scale, "%v: %+v", a, w)
			expect(t, a != window.AlignedWindow || w.ExpiresAt.Equal(limits.AlignedStart(now, scale).Add(scale)), "%+v", w)
			last = w
			time.Sleep(w.Left)
		}
	}
	await(t, "the hash is left", func() bool { return s.Must(t, "DBSIZE") == "0" })
}

// skewed is a client of a server that has a clock of its own, whatever that of the backend shows.
type skewed struct {
	plainClient
	clock   backendtest.Clock
	scripts int
}

func (s *skewed) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	s.scripts++
	args = slices.Clone(args)
	args[0] = strconv.FormatInt(s.clock.Now().UnixMicro(), 10)
	return s.plainClient.Eval(ctx, script, keys, args)
}

// Two clients whose clocks are on both sides of midnight count in one window: that of the server's clock.
func TestCalendarWindowsAreThoseOfTheServersClock(t *testing.T) {
	day := window.Limit{Name: "n", Max: 5, Calendar: window.Day, Zone: "Europe/Berlin", Algorithm: window.CalendarWindow}
	fixed := limitOf(window.FixedWindow, time.Hour, 10)
	berlin, err := time.LoadLocation(day.Zone)
	noError(t, err)
	midnight := time.Date(2027, time.March, 28, 0, 0, 0, 0, berlin) // a day of 23 hours
	clock := backendtest.NewClock()
	server := &skewed{plainClient: plainClient{connect(t, testkit.StartRedis(t))}, clock: clock}
	differs := func(d time.Duration) *rediswindow.Backend {
		return rediswindow.New(server, rediswindow.WithClock(func() time.Time { return clock.Now().Add(d) }))
	}
	behind, ahead, far := differs(-2*time.Minute), differs(2*time.Minute), differs(1000*time.Hour)
	took := func(b *rediswindow.Backend, key string, count uint64, ends time.Time, scripts int) {
		t.Helper()
		before := server.scripts
		w := must(t, b.Take, key, day, 1)
		expect(t, w.Count == count && w.ExpiresAt.Equal(ends) && w.Left == ends.Sub(clock.Now()), "%+v, want %d until %v", w, count, ends)
		expect(t, server.scripts == before+scripts, "%d scripts", server.scripts-before)
	}

	set(clock, midnight.Add(-time.Minute))
	took(ahead, "a", 1, midnight, 2) // it believes in the next day, and asks once more
	took(ahead, "a", 2, midnight, 1) // a window that is open keeps its end
	took(behind, "a", 3, midnight, 1)
	took(far, "a", 4, midnight, 1)
	w := must(t, ahead.Peek, "a", day, 1)
	expect(t, w.Count == 4 && w.ExpiresAt.Equal(midnight), "%+v", w)

	set(clock, midnight.Add(time.Minute))
	next := midnight.AddDate(0, 0, 1)
	expect(t, next.Sub(midnight) == 23*time.Hour, "%v", next)
	took(behind, "a", 1, next, 2)
	took(far, "a", 2, next, 1)
	w = must(t, far.Set, "a", day, 4)
	expect(t, w.Count == 4 && w.ExpiresAt.Equal(next), "%+v", w)

	set(clock, next.Add(time.Minute)) // 24 h after the last midnight it is not yet
	took(far, "a", 1, next.AddDate(0, 0, 1), 2)
	next = next.AddDate(0, 0, 1)

	// A take of several limits asks once more, too, and counts each once.
	windows := make([]window.Window, 2)
	granted, err := far.TakeAll(t.Context(), []window.Take{fixed.For("b", 2), day.For("b", 3)}, windows)
	expect(t, granted && err == nil && windows[0].Count == 2 && windows[1].Count == 3 && windows[1].ExpiresAt.Equal(next), "%v, %v, %+v", granted, err, windows)
	granted, err = far.TakeAll(t.Context(), []window.Take{fixed.For("b", 2), day.For("b", 3)}, windows)
	expect(t, !granted && err == nil && windows[0].Count == 2 && windows[1].Count == 3, "%v, %v, %+v", granted, err, windows)
}
