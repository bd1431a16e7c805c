package memory

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// coarseTick is the interval between ticks of a coarse clock.
	coarseTick = 100 * time.Millisecond
	// stopped is the time of a coarse clock that does not tick. It is later than any end, so
	// longBefore returns false.
	stopped = math.MaxInt64
)

// coarseClock holds the time of its last tick. It costs next to nothing to read, whereas a
// reading of the system's clock takes as long as the rest of a hit. It ticks only while it is
// in use: a tick with no reading since the tick before stops it.
type coarseClock struct {
	origin time.Time
	last   atomic.Int64 // time of the last tick, in nanoseconds since origin, or stopped
	read   atomic.Bool  // there was a reading since the last tick
	timer  *time.Timer  // nil: the clock never ticks
}

// enable allows the clock to be started.
func (c *coarseClock) enable(origin time.Time) {
	c.origin = origin
	c.timer = time.AfterFunc(math.MaxInt64, c.tick)
	c.timer.Stop()
}

// start starts the clock if it is enabled and stopped.
func (c *coarseClock) start(now int64) {
	if c.timer != nil && c.last.Load() == stopped && c.last.CompareAndSwap(stopped, now) {
		c.timer.Reset(coarseTick)
	}
}

func (c *coarseClock) tick() {
	if !c.read.Swap(false) {
		c.last.Store(stopped)
		return
	}
	c.last.Store(int64(time.Since(c.origin)))
	c.timer.Reset(coarseTick)
}

// longBefore returns the time of the last tick, and whether it is long before the end of a
// window: by an eighth of the scale, and by eleven ticks. The window can only be over if the clock
// has not ticked for that long.
func (c *coarseClock) longBefore(end int64, scale time.Duration) (last int64, ok bool) {
	if last = c.last.Load(); last > end-int64(max(11*coarseTick, scale/8)) {
		return 0, false
	}
	if !c.read.Load() {
		c.read.Store(true)
	}
	return last, true
}
