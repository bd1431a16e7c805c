package memory

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// beat is how often a pulse reads the clock.
	beat = 100 * time.Millisecond
	// atRest is the time of a pulse that does not beat: amply before no end.
	atRest = math.MaxInt64
)

// pulse tells what the time was a moment ago. To read it takes next to nothing, where to
// read the clock takes as long as all else that a hit does. It beats while somebody asks.
type pulse struct {
	origin time.Time
	last   atomic.Int64 // when it last beat, in nanoseconds since the origin, or atRest
	asked  atomic.Bool  // since it last beat
	timer  *time.Timer  // nil: it never beats
}

// enable has it beat once started.
func (p *pulse) enable(origin time.Time) {
	p.origin = origin
	p.timer = time.AfterFunc(math.MaxInt64, p.beat)
	p.timer.Stop()
}

// start has it beat, if it may and does not.
func (p *pulse) start(now int64) {
	if p.timer != nil && p.last.Load() == atRest && p.last.CompareAndSwap(atRest, now) {
		p.timer.Reset(beat)
	}
}

func (p *pulse) beat() {
	if !p.asked.Swap(false) {
		p.last.Store(atRest)
		return
	}
	p.last.Store(int64(time.Since(p.origin)))
	p.timer.Reset(beat)
}

// amplyBefore returns when it last beat, and whether that was amply before a window's end: so
// much that the next beat would have to be late by an eighth of the window, and by ten beats,
// for the window to be over.
func (p *pulse) amplyBefore(end int64, scale time.Duration) (last int64, ok bool) {
	if last = p.last.Load(); last > end-int64(max(11*beat, scale/8)) {
		return 0, false
	}
	if !p.asked.Load() {
		p.asked.Store(true)
	}
	return last, true
}
