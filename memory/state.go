package memory

import (
	"math"
	"time"
)

// state is what is kept of a window. Each algorithm uses its fields in its own way: those that are not said to
// be otherwise here are as fixed windows use them. Times are nanoseconds since the backend's origin. If the
// generation is 0, the state is new, and has only a scale.
type state struct {
	start int64
	// meta has, in its highest 26 bits, the generation: it differs from that of the windows that the
	// shard opened before and after. The six bits below are the reach of a token bucket, and the lower
	// half is the algorithm's.
	meta  uint64
	count uint64
	scale time.Duration
}

const (
	generationShift = 38
	reachShift      = 32
)

func (e *state) generation() uint64 { return e.meta >> generationShift }

// setGeneration sets the generation to the lowest 26 bits of g, or to 1 if these are 0.
func (e *state) setGeneration(g uint64) {
	e.meta = e.meta&(1<<generationShift-1) | max(g<<generationShift, 1<<generationShift)
}

func (e *state) isNew() bool { return e.generation() == 0 }

// left returns how long it is until end, or the scale if that is past.
func (e *state) left(end, now int64) time.Duration {
	if left := minus(end, now); !e.isNew() && left > 0 {
		return left
	}
	return e.scale
}

// end returns when the window ends, or the largest time if the end is beyond it.
func (e *state) end() int64 { return after(e.start, e.scale) }

// after returns t + d, or the largest time if the sum is beyond it.
func after(t int64, d time.Duration) int64 {
	if t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}

// active reports whether the window has not ended. If the clock went back to before the
// window's start, the window is active if a window that opened now would overlap it. So no
// window gets more than its limit, and no key is denied for longer than two scales.
func (e *state) active(now int64) bool { return e.activeUntil(e.end(), now) }

// activeUntil is active for a window that ends at end.
func (e *state) activeUntil(end, now int64) bool {
	return now < end && (e.start <= now || minus(e.start, now) < e.scale)
}

// minus returns a - b, or the largest or smallest Duration if the difference is beyond it.
func minus(a, b int64) time.Duration {
	d := a - b
	switch {
	case a >= b && d < 0:
		return math.MaxInt64
	case a < b && d >= 0:
		return math.MinInt64
	}
	return time.Duration(d)
}

// plus returns a + b, neither of which is negative, or the largest Duration if the sum is larger.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
