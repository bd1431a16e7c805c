package redisbackend_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

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
