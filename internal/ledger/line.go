package ledger

import "time"

// line is the processes that wait for places of a key and name: those with a larger Max first, and of these first come,
// first served.
type line []waiter

// waiter is a process that waits.
type waiter struct {
	process  string
	n, limit uint64        // of its first want
	waiting  uint64        // its wants
	end      time.Duration // when it has lost its position
	wake     func()        // or nil
	woken    bool          // since its last claim
}

// first returns the process that is first in line, or nothing.
func (l line) first() string {
	if len(l) == 0 {
		return ""
	}
	return l[0].process
}

// reserved returns how many places a process must leave under a Max: those for the first in line, unless that is the
// process itself, or has a smaller Max.
func (l line) reserved(process string, limit uint64) uint64 {
	if len(l) == 0 || l[0].limit < limit || l[0].process == process {
		return 0
	}
	return l[0].n
}

// waiting returns how many wants wait.
func (l line) waiting() (n uint64) {
	for i := range l {
		n += l[i].waiting
	}
	return n
}
