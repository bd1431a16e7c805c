package memory

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
)

const (
	// referenceMaxAge is the greatest age of a reference.
	referenceMaxAge = int64(time.Second)
	// clockReadings is how often the clocks are read at most, until the process has not stopped meanwhile.
	clockReadings = 4
	// coarseTick is the interval between ticks of the coarse clock.
	coarseTick = 100 * time.Millisecond
	// stopped is the time of a coarse clock that does not tick. It is later than any end, so coarse returns
	// false.
	stopped = math.MaxInt64
)

// clock tells the time in nanoseconds since its origin, which are the times of states, and the time of day.
//
// Reading the monotonic clock takes half as long as reading both clocks. So the wall clock is read
// once a second. In between, times of day are computed from the reference. If the wall clock
// is set, they are wrong for up to a second, and aligned and sliding windows follow it then. Other
// windows depend on the monotonic clock only.
//
// The time of the last tick of the coarse clock costs next to nothing to read, whereas a reading of the
// system's clock takes as long as the rest of a hit. It ticks only while it is in use: a tick with no reading
// since the tick before stops it.
type clock struct {
	read      func() time.Time
	system    bool // it is the system's clock
	origin    time.Time
	reference atomic.Pointer[reference]

	last  atomic.Int64 // time of the last tick, or stopped
	used  atomic.Bool  // there was a reading since the last tick
	timer *time.Timer  // nil: there are no ticks
}

// reference is a time, from which other times of day are computed.
type reference struct {
	time  time.Time
	nanos int64 // the same time
	ahead int64 // how far the wall clock is ahead of the times of states

	system bool  // it is of the system's clock
	second int64 // of time, since 1970
	begun  int64 // when that has begun, in nanoseconds like nanos
}

// init sets the clock to one that reads the time from read, or to that of the system.
func (c *clock) init(read func() time.Time) {
	c.last.Store(stopped)
	if c.read = read; read == nil {
		c.read, c.system = time.Now, true
	}
	c.origin = c.read()
	c.reference.Store(c.newReference(c.origin, 0, 0))
	if c.system {
		c.timer = time.AfterFunc(math.MaxInt64, c.tick)
		c.timer.Stop()
	}
}

// now returns the time.
func (c *clock) now() (int64, *reference) {
	if c.system {
		nanos, ref := int64(time.Since(c.origin)), c.reference.Load()
		if nanos-ref.nanos < referenceMaxAge {
			return nanos, ref
		}
	}
	return c.readBoth()
}

// readBoth reads both clocks. If the clock's times have a monotonic reading, that counts, and the time of
// day is ahead of it by what it has been set forward since the origin.
//
// A process can stop in the call that reads both clocks, between the two. The time of day is old then,
// and would be so for a second. So the clocks are read again if that took long.
func (c *clock) readBoth() (int64, *reference) {
	var t time.Time
	for range clockReadings {
		var before time.Duration
		if c.system {
			before = time.Since(c.origin)
		}
		t = c.read()
		if !c.system || t.Sub(c.origin)-before < time.Millisecond {
			break
		}
	}
	nanos := int64(t.Sub(c.origin))
	ahead := int64(t.Round(0).Sub(c.origin.Round(0))) - nanos
	ref := c.reference.Load()
	if c.system || ahead != ref.ahead {
		ref = c.newReference(t, nanos, ahead)
		c.reference.Store(ref)
	}
	return nanos, ref
}

// newReference returns the reference for a time.
func (c *clock) newReference(t time.Time, nanos, ahead int64) *reference {
	return &reference{t, nanos, ahead, c.system, t.Unix(), nanos - int64(t.Nanosecond())}
}

// timeOf returns the time of day, for the system's clock without a monotonic reading: to add to a time takes 5 ns more.
func (r *reference) timeOf(nanos int64) time.Time {
	if r.system {
		return time.Unix(r.second, int64(minus(nanos, r.begun)))
	}
	return r.time.Add(minus(nanos, r.nanos))
}

// shift returns by how much the times of an algorithm's states are ahead: those that follow the wall clock
// are.
func (r *reference) shift(a *algorithm) int64 {
	if a.aligned {
		return r.ahead
	}
	return 0
}

// alignedStart returns the start of the aligned window of a time of states that follow the wall clock.
func (r *reference) alignedStart(now int64, scale time.Duration) int64 {
	t := r.timeOf(int64(minus(now, r.ahead)))
	return now + int64(limits.AlignedStart(t, scale).Sub(t))
}

// coarse returns the time of the last tick, and whether it is long before the end of a window: by an eighth
// of the scale, and by eleven ticks. The window can only be over if the clock has not ticked for that long.
func (c *clock) coarse(end int64, scale time.Duration) (last int64, ok bool) {
	if last = c.last.Load(); last > end-int64(max(11*coarseTick, scale/8)) {
		return 0, false
	}
	if !c.used.Load() {
		c.used.Store(true)
	}
	return last, true
}

// start makes the coarse clock tick, if it may.
func (c *clock) start(now int64) {
	if c.timer != nil && c.last.Load() == stopped && c.last.CompareAndSwap(stopped, now) {
		c.timer.Reset(coarseTick)
	}
}

func (c *clock) tick() {
	if !c.used.Swap(false) {
		c.last.Store(stopped)
		return
	}
	now, _ := c.now() // it also renews the reference
	c.last.Store(now)
	c.timer.Reset(coarseTick)
}
