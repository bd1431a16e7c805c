package redisbackend_test

import (
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
			takes := func(want int) {
				t.Helper()
				granted := 0
				for range 20 {
					if !must(t, b.Take, key, l, 1).Refused {
						granted++
					}
				}
				expect(t, granted == want, "%v back: %d are granted, want %d", back, granted, want)
			}
			first := must(t, b.Take, key, l, 5)
			takes(5)
			set(clock, begin.Add(-back))
			over := back >= time.Minute
			w := must(t, b.Peek, key, l, 1)
			expect(t, w.Refused == !over && (w.Count == 0) == over && (w.Left == 0) == over, "%v back: %+v", back, w)
			given, err := b.GiveBack(t.Context(), key, l, 5, first.ID)
			expect(t, given == !over && err == nil, "%v back: %v, %v", back, given, err)
			if over {
				takes(10)
			} else {
				takes(5)
			}
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
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow} {
		s := testkit.StartRedis(t)
		b := redisbackend.New(connect(t, s))
		var last window.Window
		for opened := 0; opened < 3; {
			before := time.Now().Truncate(time.Microsecond)
			w := must(t, b.Hit, "k", limitOf(a, scale, 1), 1)
			now := w.ExpiresAt.Add(-w.Left)
			expect(t, !now.Before(before) && !now.After(time.Now()) && w.Left > 0 && w.Left <= scale, "%v: %+v at %v", a, w, before)
			if w.Count > 1 {
				expect(t, w.Count == last.Count+1 && w.ExpiresAt.Equal(last.ExpiresAt), "%v: %+v follows on %+v", a, w, last)
			} else {
				opened++
				start := now
				if a == window.AlignedWindow {
					start = limits.AlignedStart(now, scale)
				}
				expect(t, !now.Before(last.ExpiresAt) && w.ExpiresAt.Equal(start.Add(scale)), "%v: %+v follows on %+v", a, w, last)
			}
			last = w
		}
		await(t, "the hash is left", func() bool { return s.Must(t, "DBSIZE") == "0" })
	}
}

func TestAlignedWindowsStartAtMultiplesOfTheScale(t *testing.T) {
	var now time.Time
	b := redisbackend.New(connect(t, testkit.StartRedis(t)), rediswindow.WithClock(func() time.Time { return now }))
	for _, scale := range []time.Duration{time.Millisecond, 1234567 * time.Microsecond, 24 * time.Hour, 8766 * time.Hour} {
		for _, year := range []int{1910, 1969, 1970, 2030, 2100} {
			start := limits.AlignedStart(time.Date(year, 2, 3, 4, 5, 6, 7000, time.UTC), scale)
			for _, now = range []time.Time{start, start.Add(scale / 2).Truncate(time.Microsecond), start.Add(scale - time.Microsecond)} {
				w := must(t, b.Set, "k", limitOf(window.AlignedWindow, scale, 10), 1)
				end := start.Add(scale)
				expect(t, w.ExpiresAt.Equal(end) && w.Left == end.Sub(now), "at %v, a window of %v ends at %v, want %v", now, scale, w.ExpiresAt, end)
			}
		}
	}
}
