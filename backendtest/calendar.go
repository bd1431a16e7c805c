package backendtest

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
	_ "time/tzdata" // of machines that have no zone data

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// day is what the limits of calendar windows have in place of a scale.
type day struct {
	unit  window.Calendar
	zone  string
	start uint8
}

// limit returns a limit of calendar windows.
func (d day) limit(name string, most uint64) window.Limit {
	return window.Limit{Name: name, Max: most, Calendar: d.unit, Zone: d.zone, StartDay: d.start, Algorithm: window.CalendarWindow}
}

// window returns the bounds of the window of now.
func (d day) window(c calls, now time.Time) (start, end time.Time) {
	l := d.limit("", 1)
	calendar, err := limits.CalendarOf(&l)
	if err != nil {
		c.Fatal(err)
	}
	return calendar.Window(now)
}

// by returns c with limits of calendar windows. The scales of its calls do not matter.
func (c calls) by(unit window.Calendar, zone string, start uint8) calls {
	c.Algorithm, c.on = window.CalendarWindow, day{unit, zone, start}
	return c
}

// calendarVector is a window: with the instant now in it.
type calendarVector struct {
	Why, Zone       string
	Calendar        window.Calendar
	StartDay        uint8 `json:"start_day"`
	Now, Start, End time.Time
}

// testCalendarVectors takes in the windows of the vectors, which are in the order of time. The clock may show a
// later time than some of them have.
func testCalendarVectors(c calls) {
	text, err := vectorFiles.ReadFile("testdata/calendar-window.json")
	if err != nil {
		c.Fatal(err)
	}
	var file struct{ Vectors []calendarVector }
	if err := json.Unmarshal(text, &file); err != nil {
		c.Fatal(err)
	}
	for i, v := range file.Vectors {
		if v.Now.Before(c.Clock.Now()) {
			continue
		}
		c.Clock.Advance(v.Now.Sub(c.Clock.Now()))
		c, key := c.by(v.Calendar, v.Zone, v.StartDay), fmt.Sprint("k", i)
		c.want(c.granted(key, 0, 3, 2), 2, v.End)
		c.want(c.refused(key, 0, 3, 2), 2, v.End)
		c.want(c.get(key, 0), 2, v.End)
		if c.Failed() {
			c.Fatalf("%+v", v)
		}
	}
}

// testCalendarEnds follows windows through most of a year.
func testCalendarEnds(c calls) {
	kinds := []calls{
		c.by(window.Day, "Europe/Berlin", 0), c.by(window.Day, "Pacific/Kiritimati", 0), c.by(window.Week, "America/St_Johns", 7),
		c.by(window.Month, "Australia/Lord_Howe", 31), c.by(window.Year, "Africa/Cairo", 0),
	}
	const key = "k"
	for range 230 {
		for _, c := range kinds {
			_, end := c.on.window(c, c.Clock.Now())
			was := c.get(key, 0)
			if was.Count > 0 {
				c.want(was, was.Count, end)
			}
			c.want(c.granted(key, 0, 1000, 1), was.Count+1, end)
			c.want(c.refused(key, 0, 1, 1), was.Count+1, end)
		}
		day := kinds[0]
		_, end := day.on.window(day, day.Clock.Now())
		day.Clock.Advance(end.Sub(day.Clock.Now()) - time.Millisecond)
		day.want(day.get(key, 0), day.get(key, 0).Count, end)
		day.Clock.Advance(time.Millisecond + day.Precision)
		for _, c := range kinds { // those that have ended have no window
			if start, _ := c.on.window(c, c.Clock.Now()); c.Clock.Now().Sub(start) <= c.Precision {
				c.none(c.get(key, 0))
			}
		}
		if c.Failed() {
			c.Fatalf("at %v", c.Clock.Now())
		}
	}
}

// testCalendarCalls makes all calls in one window, and some in the next.
func testCalendarCalls(c calls) {
	c = c.by(window.Month, "Asia/Tokyo", 17).upTo(10)
	const key = "k"
	_, end := c.on.window(c, c.Clock.Now())
	c.none(c.peek(key, 0, 10, 10))
	c.want(c.hit(key, 0, 10, 3), 3, end)
	c.Clock.Advance(end.Sub(c.Clock.Now()) / 2)
	taken := c.granted(key, 0, 10, 7)
	c.want(taken, 10, end)
	c.refused(key, 0, 10, 1)
	if w := c.peek(key, 0, 10, 1); !w.Refused {
		c.Errorf("Peek of 1 of a full month returns %+v", w)
	}
	c.want(c.charge(key, 0, 2), 12, end)
	if c.giveBack(key, 0, taken.ID, 5, true) {
		c.want(c.get(key, 0), 7, end)
	}
	c.want(c.set(key, 0, 4), 4, end)
	c.reset(key, 0)
	c.none(c.get(key, 0))
	taken = c.granted(key, 0, 10, 6)
	c.want(taken, 6, end)

	c.Clock.Advance(end.Sub(c.Clock.Now()) + c.Precision)
	c.none(c.get(key, 0))
	_, end = c.on.window(c, c.Clock.Now())
	c.want(c.hit(key, 0, 10, 0), 0, end)
	c.want(c.hit(key, 0, 10, 1), 1, end)
	c.giveBack(key, 0, taken.ID, 6, false)
	c.want(c.get(key, 0), 1, end)
}

// testCalendarCrossed has all clients take and give back at one time while windows end.
func testCalendarCrossed(c calls) {
	c.by(window.Day, "Europe/Berlin", 0).crossEnd("day")
	c.by(window.Week, "America/St_Johns", 7).crossEnd("week")
	c.by(window.Month, "Australia/Lord_Howe", 31).crossEnd("month")
	c.by(window.Year, "Africa/Cairo", 0).crossEnd("year")
}

// crossEnd has takes of a key on both sides of the end of a window. Of each, up to the limit is held.
func (c calls) crossEnd(key string) {
	const margin, takes = time.Second, 20 * goroutines
	_, end := c.on.window(c, c.Clock.Now())
	_, next := c.on.window(c, end)
	c.Clock.Advance(end.Sub(c.Clock.Now()) - margin)
	clients, l := c.clients(), c.limit(0, c.bounded(200))
	held := map[time.Time]*atomic.Int64{end: {}, next: {}}
	taken := make([]window.Window, takes)
	sizeOf := func(i int) uint64 { return uint64(1 + i%3) }
	giveBack := func(c calls, i int) {
		w := taken[i]
		over := !c.Clock.Now().Before(w.ExpiresAt)
		ok, err := c.Backend.GiveBack(c.Context(), key, l, sizeOf(i), w.ID)
		c.expect(err == nil && !(ok && over), "GiveBack returns %v, %v, and it is %v that the window was over", ok, err, over)
		if ok {
			held[w.ExpiresAt.UTC()].Add(-int64(sizeOf(i)))
		}
	}
	concurrently(takes, func(i int) {
		if i == takes/2 { // this goroutine takes on both sides of the end
			c.Clock.Advance(margin + c.Precision)
		}
		c := clients[i%len(clients)]
		w, err := c.Backend.Take(c.Context(), key, l, sizeOf(i))
		in := held[w.ExpiresAt.UTC()]
		if err != nil || in == nil {
			c.Errorf("a take returns %+v, %v; windows end at %v and %v", w, err, end, next)
			return
		}
		if !w.Refused {
			in.Add(int64(sizeOf(i)))
			taken[i] = w
		}
		before := i - goroutines // of this goroutine, which keeps some, and at last all
		if before >= 0 && taken[before].Count > 0 && before%19 > 0 && i < takes*3/4 {
			giveBack(c, before)
		}
	})
	for end, n := range held {
		c.expect(n.Load() > 0 && uint64(n.Load()) <= l.Max, "%d of %d are held of the window until %v", n.Load(), l.Max, end)
	}
	for _, c := range clients {
		c.want(c.upTo(l.Max).get(key, 0), uint64(held[next].Load()), next)
	}
}

// testCalendarIndependence counts in windows that differ in one thing, and in some that differ in nothing.
func testCalendarIndependence(c calls) {
	c = c.upTo(100)
	kinds := []calls{
		c, c.by(window.Day, "", 0), c.by(window.Week, "", 0), c.by(window.Month, "", 0), c.by(window.Year, "", 0),
		c.by(window.Week, "", 2), c.by(window.Month, "", 2), c.by(window.Month, "", 12), c.by(window.Month, "Europe/Berlin", 0),
		c.by(window.Month, "Europe/Vienna", 0), c.by(window.Month, "Etc/UTC", 0), c.by(window.Month, "Europe/Berlin", 2),
		c.by(window.Month, "", 0).named("2"), c.by(window.Month, "", 0).named("UTC"), c.by(window.Month, "Europe/Berlin", 0).named("n"),
	}
	keys := []string{"k", "k2", "2k", ""}
	each := func(f func(c calls, key string, count uint64)) {
		for i, c := range kinds {
			for j, key := range keys {
				f(c, key, uint64(1+i*len(keys)+j))
				if c.Failed() {
					c.Fatalf("key %q, %+v", key, c.limit(time.Hour, 100))
				}
			}
		}
	}
	each(func(c calls, key string, count uint64) { c.state(c.charge(key, time.Hour, count), count) })
	each(func(c calls, key string, count uint64) { c.state(c.get(key, time.Hour), count) })
	same := func(a, b calls) {
		c.Helper()
		was := a.get("k", 0).Count
		if w := b.charge("k", 0, 1); w.Count != was+1 {
			c.Errorf("%v and %v are not one count", a.limit(0, 100), b.limit(0, 100))
		}
	}
	same(c.by(window.Month, "", 0), c.by(window.Month, "UTC", 1))
	same(c.by(window.Month, "UTC", 0), c.by(window.Month, "", 1))
	same(c.by(window.Week, "", 1), c.by(window.Week, "", 0))

	c.delete("k2", time.Hour)
	c.state(c.by(window.Month, "", 0).get("k2", 0), uint64(1+3*len(keys)+1))
	c.by(window.Month, "UTC", 1).reset("k2", 0)
	c.none(c.by(window.Month, "", 0).get("k2", 0))
	c.state(c.by(window.Month, "", 2).get("k2", 0), uint64(1+6*len(keys)+1))
	if got, want := c.delete("k2"), len(kinds)-2; got != want {
		c.Errorf("Delete returns %d, want %d", got, want)
	}
	for _, c := range kinds {
		c.none(c.get("k2", time.Hour))
		c.expect(c.get("2k", time.Hour).Count > 0, "Delete has ended the window of another key")
	}
}

// testCalendarAllOrNone takes of limits of all algorithms together.
func testCalendarAllOrNone(c calls) {
	const key = "k"
	month, day := c.by(window.Month, "", 1), c.by(window.Day, "Asia/Kathmandu", 0)
	takes := c.spread(10)
	takes = append(takes, month.takeOf(key, 0, 10), day.takeOf(key, 0, 10), month.by(window.Month, "UTC", 0).takeOf(key, 0, 10))
	windows, granted := c.takeAll(takes...)
	c.expect(granted, "the takes are refused: %+v", windows)
	last := len(takes) - 1
	month.want(windows[last], 2, month.end(0)) // two takes are of one count
	month.want(windows[last-2], 2, month.end(0))
	day.want(windows[last-1], 1, day.end(0))
	takes[last-1].N = 10
	windows, granted = c.takeAll(takes...)
	c.expect(!granted && windows[last-1].Refused && !windows[last].Refused, "a take of 10 of 10 is granted after one: %+v", windows)
	takes[last-1].N, takes[last].N = 1, 8
	windows, granted = c.takeAll(takes...)
	c.expect(!granted && windows[last].Refused && windows[last-2].Refused, "takes of 8 and 1 of 10 are granted after two: %+v", windows)
	month.want(month.get(key, 0), 2, month.end(0))
	day.want(day.get(key, 0), 1, day.end(0))
}

func testCalendarMistakes(c calls) {
	for _, change := range []func(l *window.Limit){
		func(l *window.Limit) { l.Calendar = window.Year + 1 },
		func(l *window.Limit) { l.Scale = time.Hour },
		func(l *window.Limit) { l.StartDay = 32 },
		func(l *window.Limit) { l.Calendar, l.StartDay = window.Week, 8 },
		func(l *window.Limit) { l.Calendar = window.Day },
		func(l *window.Limit) { l.Zone = "Local" },
		func(l *window.Limit) { l.Zone = "right/UTC" },
		func(l *window.Limit) { l.Zone = "Mars/Olympus" },
		func(l *window.Limit) { l.Algorithm = window.FixedWindow },
		func(l *window.Limit) { l.Burst = 1 },
	} {
		l := day{window.Month, "Europe/Berlin", 17}.limit("", 5)
		change(&l)
		c.sameErrors(l, window.ErrRange)
	}
}
