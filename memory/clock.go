package memory

import (
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
)

// referenceAge is for how long times of day are computed from a reading of both clocks.
const referenceAge = int64(time.Second)

// clock tells the time, and how long it has been since the clock was made. To read the system's monotonic clock takes
// half as long as to read both clocks, so the wall clock is read once a second. In between, times of day are those of
// the reference.
type clock struct {
	read      func() time.Time // nil: the system's clock
	origin    time.Time
	reference atomic.Pointer[algorithm.Time] // of the system's clock
}

func newClock(read func() time.Time) *clock {
	c := &clock{read: read, origin: time.Now()}
	if read != nil {
		c.origin = read().Round(0)
	}
	c.refresh()
	return c
}

// now reads the time.
func (c *clock) now() algorithm.Time {
	if c.read != nil {
		day := c.read().Round(0)
		return algorithm.Time{Now: algorithm.Nanos(day) - algorithm.Nanos(c.origin), Day: day}
	}
	now := int64(time.Since(c.origin))
	ref := c.reference.Load()
	if now-ref.Now >= referenceAge {
		ref = c.refresh()
	}
	return algorithm.Time{Now: now, Day: ref.Day.Add(time.Duration(now - ref.Now))}
}

// refresh reads both clocks.
func (c *clock) refresh() *algorithm.Time {
	now := time.Now()
	ref := &algorithm.Time{Now: int64(now.Sub(c.origin)), Day: now.Round(0)}
	c.reference.Store(ref)
	return ref
}
