package ledger

import "time"

// line is those who wait for places of a key and name, first come, first served.
type line struct{ first, last *waiter }

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

// append puts a waiter at the end.
func (l *line) append(w *waiter) {
	w.prev, w.next = l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
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

// drop removes processes from the front that have lost their place.
func (l *line) drop(now time.Duration) {
	for l.first != nil && l.first.place == nil && l.first.end <= now {
		l.remove(l.first)
	}
}

// reserved returns how many places the given process must leave, unless it is first in line: those for the first in line.
func (l *line) reserved(now time.Duration, process string) uint64 {
	l.drop(now)
	if w := l.first; w != nil && (w.place != nil || w.process != process) {
		return w.n
	}
	return 0
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
