package backendtest

import (
	"encoding/json"
	"fmt"
	"time"
	_ "time/tzdata" // of machines that have no zone data

	"github.com/throttr-go/throttr/window"
)

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
		c := c.by(v.Calendar, v.Zone, v.StartDay).on(fmt.Sprint("k", i)).upTo(3)
		c.want(c.granted(2), 2, v.End)
		c.want(c.refused(2), 2, v.End)
		c.want(c.get(), 2, v.End)
		if c.Failed() {
			c.Fatalf("%+v", v)
		}
	}
}

// testCalendarEnds follows windows through most of a year.
func testCalendarEnds(c calls) {
	day := c.by(window.Day, "Europe/Berlin", 0)
	kinds := []calls{
		day, c.by(window.Day, "Pacific/Kiritimati", 0), c.by(window.Week, "America/St_Johns", 7),
		c.by(window.Month, "Australia/Lord_Howe", 31), c.by(window.Year, "Africa/Cairo", 0),
	}
	for range 230 {
		for _, c := range kinds {
			was := c.get().Count
			if was > 0 {
				c.opened(c.get(), was)
			}
			c.opened(c.upTo(1000).granted(1), was+1)
			c.opened(c.upTo(1).refused(1), was+1)
		}
		end := day.end()
		c.Clock.Advance(end.Sub(c.Clock.Now()) - time.Millisecond)
		day.want(day.get(), day.get().Count, end)
		c.Clock.Advance(time.Millisecond + day.Precision)
		for _, c := range kinds { // those that have ended have no window
			if start, _ := c.window(c.Clock.Now()); c.Clock.Now().Sub(start) <= c.Precision {
				c.ended()
			}
		}
		if c.Failed() {
			c.Fatalf("at %v", c.Clock.Now())
		}
	}
}

// testCalendarCalls makes all calls in one window, and some in the next.
func testCalendarCalls(c calls) {
	c = c.by(window.Month, "Asia/Tokyo", 17)
	c.none(c.peek(10))
	c.opened(c.hit(3), 3)
	c.Clock.Advance(c.end().Sub(c.Clock.Now()) / 2)
	taken := c.granted(7)
	c.opened(taken, 10)
	c.refused(1)
	c.expect(c.peek(1).Refused, "Peek of 1 of a full month returns %+v", c.peek(1))
	c.opened(c.charge(2), 12)
	if c.giveBack(5, taken.ID, true) {
		c.opened(c.get(), 7)
	}
	c.opened(c.set(4), 4)
	c.reset()
	c.ended()
	taken = c.granted(6)
	c.opened(taken, 6)

	c.Clock.Advance(c.end().Sub(c.Clock.Now()) + c.Precision)
	c.ended()
	c.opened(c.hit(0), 0)
	c.opened(c.hit(1), 1)
	c.giveBack(6, taken.ID, false)
	c.opened(c.get(), 1)
}
