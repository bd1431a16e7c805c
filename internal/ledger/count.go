package ledger

import (
	"slices"
	"time"
)

// count is the places of a key and name.
type count struct {
	sum     uint64 // places held
	limit   uint64 // the largest Max under which places are held, since there were none
	entries []entry
}

// entry is a process that holds places, or waits for some. Those that wait are in line among the entries: those with a
// larger Max first, and of these first come, first served.
type entry struct {
	process   string
	held, seq uint64        // 0 if it holds none
	end       time.Duration // when it has lost them

	n, limit uint64        // of its first want; 0 if it does not wait
	waiting  uint64        // how many wants of it wait
	lineEnd  time.Duration // when it has lost its position
	wake     func()        // or nil
	woken    bool          // since its last claim
}

// over reports whether an entry is not needed any more.
func over(e entry) bool { return e.held == 0 && e.waiting == 0 }

// expire removes what is over: places, and positions in line.
func (c *count) expire(now time.Duration) {
	for i := range c.entries {
		e := &c.entries[i]
		if e.held > 0 && e.end <= now {
			c.sum -= e.held
			e.held = 0
			e.seq = 0
		}
		if e.waiting > 0 && e.lineEnd <= now {
			*e = entry{process: e.process, held: e.held, seq: e.seq, end: e.end}
		}
	}
	c.entries = slices.DeleteFunc(c.entries, over)
}

// noEntry is in place of an entry that there is not.
var noEntry entry

// head returns the first in line, or noEntry.
func (c *count) head() *entry {
	for i := range c.entries {
		if c.entries[i].waiting > 0 {
			return &c.entries[i]
		}
	}
	return &noEntry
}

// wake returns what wakes the first in line, if there is room for it, or nil. It is another one than the process that
// asks, and was not woken since it has asked.
func (c *count) wake(asking string) func() {
	e := c.head()
	if e == &noEntry || e.woken || e.process == asking || !c.fits(e.n, e.limit) {
		return nil
	}
	e.woken = true
	return e.wake
}

// fits reports whether n more places fit under a Max.
func (c *count) fits(n, limit uint64) bool { return n <= limit && c.sum <= limit-n }
