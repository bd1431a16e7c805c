package memory

import (
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
)

// clock tells the time, and how long it has been since the clock was made. To read the system's monotonic clock takes
// half as long as to read both clocks, so the wall clock is read once a second. In between, times of day are those of
// the last reading.
type clock struct {
	read   func() time.Time
	system bool // it is the system's clock
	origin time.Time
	last   atomic.Pointer[algorithm.Reading]
	maxAge time.Duration // of the last reading
}

func newClock(read func() time.Time) *clock {
	c := &clock{read: read, system: read == nil, maxAge: 100 * 365 * 24 * time.Hour} // a [time.Duration] holds 292 years
	if c.system {
		c.read = time.Now
		c.maxAge = time.Second
	}
	c.origin = c.read()
	c.refresh()
	return c
}

// now reads the time.
func (c *clock) now() algorithm.Time {
	last := c.last.Load()
	var age time.Duration
	if c.system {
		age = time.Since(c.origin) - time.Duration(last.Now)
	} else {
		age = c.read().Sub(last.Day) // which does not wrap around
	}
	if age.Abs() >= c.maxAge {
		last = c.refresh()
		age = 0
	}
	return algorithm.Time{Now: last.Now + int64(age), Last: last}
}

// refresh reads the wall clock, too.
func (c *clock) refresh() *algorithm.Reading {
	now := c.read()
	last := &algorithm.Reading{Day: now.Round(0)}
	if c.system {
		last.Now = int64(now.Sub(c.origin))
	} else {
		last.Now = algorithm.Nanos(now) - algorithm.Nanos(c.origin)
	}
	c.last.Store(last)
	return last
}
