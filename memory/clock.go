package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
)

const (
	// referenceAge is for how long times of day are computed from a reading of both clocks.
	referenceAge = int64(time.Second)
	// clockReadings is how often both clocks are read at most, until the process has not stopped in between.
	clockReadings = 4
	// longestStep is by how much the time of a user's clock changes at most between two readings. What it has
	// counted is over by then.
	longestStep = time.Duration(1<<62 + 1)
)

// instant is a reading of the clocks. Mono and wall are nanoseconds since the backend was made, and sec and nano the
// time of day since 1970.
type instant struct{ mono, wall, sec, nano int64 }

// of returns the time of an algorithm.
func (i instant) of(a *algorithm.Algorithm) algorithm.Time {
	if a.Wall {
		return algorithm.Time{Now: i.wall, Sec: i.sec, Nano: i.nano}
	}
	return algorithm.Time{Now: i.mono, Sec: i.sec, Nano: i.nano}
}

// clock tells the time. To read the system's monotonic clock takes half as long as to read both clocks, so the wall
// clock is read once a second. In between, times of day are those of the reference.
type clock struct {
	read      func() time.Time // nil: the system's clock
	origin    time.Time
	reference atomic.Pointer[instant] // of the system's clock

	mu   sync.Mutex // guards what is below
	last time.Time  // that read has returned
	at   instant    // the same
}

func (c *clock) init(read func() time.Time) {
	c.read = read
	if read == nil {
		c.origin = time.Now()
		c.refresh()
		return
	}
	c.origin = read()
	c.last = c.origin
}

// now reads the time.
func (c *clock) now() instant {
	if c.read != nil {
		return c.step(c.read())
	}
	mono := int64(time.Since(c.origin))
	ref := c.reference.Load()
	if mono-ref.mono >= referenceAge {
		ref = c.refresh()
	}
	passed := mono - ref.mono
	at := instant{mono, ref.wall + passed, ref.sec, ref.nano + passed}
	switch { // of less than a second, but for readings of other goroutines
	case at.nano >= int64(time.Second):
		at.sec++
		at.nano -= int64(time.Second)
	case at.nano < 0:
		at.sec--
		at.nano += int64(time.Second)
	}
	return at
}

// refresh reads both clocks. If the process stops between the two, they do not fit, and are read again.
func (c *clock) refresh() *instant {
	var now time.Time
	for range clockReadings {
		before := time.Since(c.origin)
		now = time.Now()
		if now.Sub(c.origin)-before < time.Millisecond {
			break
		}
	}
	ref := &instant{
		mono: int64(now.Sub(c.origin)), wall: int64(now.Round(0).Sub(c.origin.Round(0))),
		sec: now.Unix(), nano: int64(now.Nanosecond()),
	}
	c.reference.Store(ref)
	return ref
}

// step makes a reading of a user's clock, which may show any time.
func (c *clock) step(now time.Time) instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at.mono += stepOf(now, c.last)
	c.at.wall += stepOf(now.Round(0), c.last.Round(0))
	c.at.sec = now.Unix()
	c.at.nano = int64(now.Nanosecond())
	c.last = now
	return c.at
}

func stepOf(now, last time.Time) int64 {
	return int64(max(-longestStep, min(now.Sub(last), longestStep)))
}

// after returns the time of day that is d after an instant.
func (c *clock) after(i instant, d time.Duration) time.Time {
	at := time.Unix(i.sec+int64(d/time.Second), i.nano+int64(d%time.Second))
	if c.read != nil {
		return at.In(c.origin.Location())
	}
	return at
}
