package ledger

import (
	"slices"
	"time"
)

// line is the processes that wait for places of a key and name: those with a larger Max first, and of these first come,
// first served.
type line []*waiter

// waiter is a process that waits.
type waiter struct {
	process  string
	n, limit uint64        // of its first want
	waiting  uint64        // its wants
	end      time.Duration // when it has lost its position
	wake     func()        // or nil
	woken    bool          // since its last claim
}

// first returns the first in line, or nil.
func (l line) first() *waiter {
	if len(l) == 0 {
		return nil
	}
	return l[0]
}

// add puts a waiter behind those whose Max is not smaller.
func (l *line) add(w *waiter) {
	i := len(*l)
	for i > 0 && (*l)[i-1].limit < w.limit {
		i--
	}
	*l = slices.Insert(*l, i, w)
}

// remove removes a waiter.
func (l *line) remove(w *waiter) {
	i := slices.Index(*l, w)
	*l = slices.Delete(*l, i, i+1)
}

// find returns the waiter of a process, or nil.
func (l line) find(process string) *waiter {
	for _, w := range l {
		if w.process == process {
			return w
		}
	}
	return nil
}

// reserved returns how many places a process must leave under a Max: those for the first in line, unless that is the
// process itself, or has a smaller Max.
func (l line) reserved(process string, limit uint64) uint64 {
	w := l.first()
	if w == nil || w.limit < limit || w.process == process {
		return 0
	}
	return w.n
}

// waiting returns how many wants wait.
func (l line) waiting() (n uint64) {
	for _, w := range l {
		n += w.waiting
	}
	return n
}
