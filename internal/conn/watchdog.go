package conn

import (
	"fmt"
	"time"
)

// watchdogTicks is how many looks without progress make a stall.
const watchdogTicks = 4

// watchdog notices that requests are outstanding and nothing comes. It looks four
// times per timeout, and only while there is something to wait for, so that a
// request costs no timer. The mutex of its connection guards it.
type watchdog struct {
	timeout  time.Duration
	look     func() // what the timer runs; made once, for a request not to allocate
	timer    *time.Timer
	armed    bool
	progress uint64 // counts reads; the reader increments it
	seen     uint64 // progress at the last look
	ticks    int    // looks since there was progress
}

// arm starts looking, if it does not already.
func (w *watchdog) arm() {
	if w.armed {
		return
	}
	w.armed, w.seen, w.ticks = true, w.progress, 0
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout/watchdogTicks, w.look)
	} else {
		w.timer.Reset(w.timeout / watchdogTicks)
	}
}

func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.armed = true // for good
}

// tick is a look. It returns true when the timeout has passed without progress.
func (w *watchdog) tick(outstanding bool) (stalled bool) {
	if !outstanding {
		w.armed = false
		return false
	}
	if w.seen != w.progress {
		w.seen, w.ticks = w.progress, 0
	} else if w.ticks++; w.ticks >= watchdogTicks {
		return true
	}
	w.timer.Reset(w.timeout / watchdogTicks)
	return false
}

// checkStall is what the watchdog's timer runs.
func (c *Conn[T]) checkStall() {
	c.mu.Lock()
	stalled := c.err == nil && c.stall.tick(c.inFlight > 0)
	n := c.inFlight
	c.mu.Unlock()
	if stalled {
		c.Fail(fmt.Errorf("%w: no byte for %v with %d requests outstanding", ErrStalled, c.stall.timeout, n))
	}
}
