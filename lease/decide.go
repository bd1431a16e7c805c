package lease

import "time"

const (
	// share: one block takes at most 1/share of the places left, so that other processes find some, too.
	share = 8
	// slow: blocks become smaller when one has lasted for more than slow times the goal.
	slow = 4
	// drift: the clocks of a process and a server may differ by 1/drift of the time that they measure.
	drift = 1000
)

// goalFor returns how long a block should last: a block that is spent sooner makes the next one
// larger.
func goalFor(age time.Duration) time.Duration { return max(age/8, time.Millisecond) }

// sizeAfter returns the size of blocks after one was used, when blocks were of the given size: spent of its places were
// taken, in the time took.
func sizeAfter(size, spent uint64, took, goal time.Duration) uint64 {
	switch {
	case took < goal && spent >= size: // a block that was smaller says nothing
		return size + min(size, 1<<62) // twice the size, but for one that would overflow
	case took > slow*goal:
		return max(size/2, 1)
	}
	return size
}

// blockSize returns how many places to take:
//   - size is what the speed of the hits asks for
//   - need is what the caller needs at least
//   - waiting is what all callers wait for
//   - left is what is left of the limit, as far as is known
//   - most is how many may be taken
func blockSize(size, need, waiting, left, most uint64) uint64 {
	n := max(min(size, left/share), min(waiting, left))
	return max(min(n, most), need)
}

// smaller returns how many places to take after a take of n was refused in a window with a count. It returns false if n
// was all that is needed, or that does not fit, either.
func smaller(n, need, limit, count uint64) (uint64, bool) {
	left := limit - min(limit, count)
	if n <= need || need > left {
		return 0, false
	}
	return max(min(n/2, left/share), need), true
}

// diesAt returns when a block dies: its window may be over. Left is what the answer to the take says
// is left of the window, by at most precision too much. It was true after the take was sent. Times are
// those of the monotonic clock.
func diesAt(sent, left, precision time.Duration) time.Duration {
	return sent + left - left/drift - precision
}

// untilOf returns until when a block is used: until it dies, but not longer than age, because
// somebody may have reset its window.
func untilOf(sent, dies, age time.Duration) time.Duration { return min(dies, sent+age) }

// denialFor returns for how long a refusal is remembered.
func denialFor(scale, age time.Duration) time.Duration {
	return min(age, max(scale/10, 10*time.Millisecond))
}
