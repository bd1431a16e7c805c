package fixedwindow

import (
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

const (
	// clients is how many clients can add their share at the same time without wrapping a
	// counter (H3).
	clients = 64
	// headroom is what a limit must leave free in a counter, so that a share is at least 1.
	headroom = clients
)

// maxValue returns the largest T.
func maxValue[T codec.Value]() uint64 { return uint64(^T(0)) }

// maxCount returns the highest limit and count.
func maxCount[T codec.Value]() uint64 { return maxValue[T]() - headroom }

// share returns how much one request may add to a counter whose limit is given. If all clients
// add that much at the same time, the counter does not wrap. It is 1 for an Inc, whose limit is
// the highest count: so Incs do not share requests.
func share(maxValue, limit uint64) uint64 { return max(1, (maxValue-limit)/clients) }

// fits reports whether h can join a batch without making it larger than a share. A hit
// fits an empty batch, however large.
func fits(maxValue uint64, b coalesce.Batch, h coalesce.Hit) bool {
	most := share(maxValue, max(b.Limit, h.Limit))
	return b.Hits == 0 || b.Sum <= most && h.Increment <= most-b.Sum
}

// overflows reports whether h must be counted and would lead beyond the highest count.
func overflows(h coalesce.Hit, count uint64) bool {
	return h.Must && h.Increment > h.Limit-min(h.Limit, count)
}

// checkCount returns a RangeError if n does not leave the headroom.
func checkCount(field string, n uint64, size int) error {
	if n <= window.MaxValue(size)-headroom {
		return nil
	}
	return &window.RangeError{
		Field: field, Value: strconv.FormatUint(n, 10), Size: size,
		Bound: fmt.Sprintf("at most %d, as %d are kept free for clients that add at once", window.MaxValue(size)-headroom, headroom),
		Needs: window.SmallestSize(func(maxValue uint64) bool { return n <= maxValue-headroom }),
	}
}

// checkIncrement returns a RangeError if increment could wrap a counter that is within
// limit.
func checkIncrement(limit, increment uint64, size int) error {
	most := window.MaxValue(size) - limit - headroom + 1
	if increment <= most {
		return nil
	}
	return &window.RangeError{
		Field: "increment", Value: strconv.FormatUint(increment, 10), Size: size,
		Bound: fmt.Sprintf("at most %d with a limit of %d", most, limit),
		Needs: window.SmallestSize(func(maxValue uint64) bool {
			return limit <= maxValue-headroom && increment <= maxValue-limit-headroom+1
		}),
	}
}

// overflowError is the error of an Inc that overflows.
func overflowError(h coalesce.Hit, count uint64, size int) error {
	return &window.RangeError{
		Field: "increment", Value: strconv.FormatUint(h.Increment, 10), Size: size,
		Bound: fmt.Sprintf("counts up to %d, and it is %d already", h.Limit, count),
		Needs: window.SmallestSize(func(maxValue uint64) bool {
			return count <= maxValue-headroom && h.Increment <= maxValue-headroom-count
		}),
	}
}

// marginError is the error for a scale whose margin is too short on a server that is not
// parked.
func marginError(a window.Algorithm, scale time.Duration, size int) error {
	return &window.RangeError{
		Field: "scale", Value: scale.String(), Size: size,
		Bound: fmt.Sprintf("it with a margin of less than %v, which is possible on a parked server only", minMargin),
		Needs: window.SmallestSize(func(maxValue uint64) bool {
			t, ok := timingFor(a, scale, maxValue)
			return ok && !t.needsParking()
		}),
	}
}

// scaleError is the error for a scale that has no timing.
func scaleError(a window.Algorithm, scale time.Duration, size int) error {
	unit := "a unit"
	if a == window.Aligned {
		unit = "half a unit"
	}
	return &window.RangeError{
		Field: "scale", Value: scale.String(), Size: size,
		Bound: fmt.Sprintf("whole numbers of %s (1 ns to 1 h) up to %d", unit, window.MaxValue(size)-1),
		Needs: window.SmallestSize(func(maxValue uint64) bool {
			_, ok := timingFor(a, scale, maxValue)
			return ok
		}),
	}
}
