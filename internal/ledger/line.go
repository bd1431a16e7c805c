package ledger

import "time"

// line is those who wait for places of a key and name: those with a larger Max first, and of these first come, first
// served.
type line struct {
	first, last *waiter
	callers     int // of this process
	processes   int
}

// waiter is a caller, or a process.
type waiter struct {
	next, prev *waiter
	n, limit   uint64 // of its want, or of its first one

	place *Place        // of a caller
	ready chan struct{} // closed when the place was granted, or the owner is closed

	process string
	waiting uint64        // its wants
	end     time.Duration // when it has lost its position in line
	wake    func()        // or nil
	woken   bool          // since its last claim
}

// add puts a waiter behind those whose Max is not smaller.
func (l *line) add(w *waiter) {
	before := l.last
	for before != nil && before.limit < w.limit {
		before = before.prev
	}
	w.prev = before
	if before == nil {
		w.next = l.first
		l.first = w
	} else {
		w.next = before.next
		before.next = w
	}
	if w.next == nil {
		l.last = w
	} else {
		w.next.prev = w
	}
	if w.place != nil {
		l.callers++
	} else {
		l.processes++
	}
}

// remove removes a waiter.
func (l *line) remove(w *waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	if w.place != nil {
		l.callers--
	} else {
		l.processes--
	}
}

// find returns the waiter of a process, or nil.
func (l *line) find(process string) *waiter {
	for w := l.first; w != nil; w = w.next {
		if w.place == nil && w.process == process {
			return w
		}
	}
	return nil
}

// drop removes processes from the front that have lost their position.
func (l *line) drop(now time.Duration) {
	for l.first != nil && l.first.place == nil && l.first.end <= now {
		l.remove(l.first)
	}
}

// reserved returns how many places a process must leave under a Max: those for the first in line, unless that is the
// process itself, or has a smaller Max.
func (l *line) reserved(process string, limit uint64) uint64 {
	w := l.first
	if w == nil || w.limit < limit || w.place == nil && w.process == process {
		return 0
	}
	return w.n
}

// waiting returns how many wants wait.
func (l *line) waiting(now time.Duration) (n uint64) {
	for w := l.first; w != nil; w = w.next {
		switch {
		case w.place != nil:
			n++
		case w.end > now:
			n += w.waiting
		}
	}
	return n
}
