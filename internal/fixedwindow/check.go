package fixedwindow

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/valuesize"
	"github.com/throttr-go/throttr/window"
)

// algorithms are those that servers can keep exactly. For the others, there would have to be an UPDATE
// that depends on the value, or on a time.
var algorithms = [...]window.Algorithm{window.FixedWindow, window.AlignedWindow, window.SlidingWindow}

// CheckAlgorithm returns an error if servers can't keep an algorithm exactly.
func CheckAlgorithm(a window.Algorithm) error {
	for _, has := range algorithms {
		if a == has {
			return nil
		}
	}
	return fmt.Errorf("%w: Throttr servers can't keep the algorithm %q; they keep %q, %q and %q, and package memory and Redis keep all",
		window.ErrUnsupported, a, algorithms[0], algorithms[1], algorithms[2])
}

// Check returns what the backend promises about a limit, or the error that every call with it returns. It
// asks no server, and assumes that one is parked if the scale needs that.
func (b *Backend[T]) Check(l window.Limit) (window.Traits, error) {
	if err := limits.Check(l); err != nil {
		return window.Traits{}, err
	}
	precision, err := b.checkScale(l.Algorithm, l.Scale)
	if err != nil {
		return window.Traits{}, err
	}
	if err := checkNumber("Max", l.Max, codec.Size[T]()); err != nil {
		return window.Traits{}, err
	}
	return window.Traits{MaxCount: maxCount[T](), Precision: precision}, nil
}

// checkScale returns an error if windows of an algorithm and scale can't be kept. Otherwise it returns how
// much later than the end of a window its ExpiresAt may be, but for the time that a call takes.
func (b *Backend[T]) checkScale(a window.Algorithm, scale time.Duration) (precision time.Duration, err error) {
	if err := CheckAlgorithm(a); err != nil {
		return 0, err
	}
	if a == window.FixedWindow {
		if bands, ok := slot.BandsFor(scale, maxValue[T]()); ok {
			return bands.Unit, nil
		}
	} else if _, ok := timingFor(scale, a == window.SlidingWindow, maxValue[T]()); ok {
		return 0, nil
	}
	return 0, scaleError(a, scale, codec.Size[T]())
}

// checkMax is Check for a limit whose name, scale and algorithm are known to be valid.
func (b *Backend[T]) checkMax(l *window.Limit) error {
	if l.Max <= maxCount[T]() && l.Burst == 0 && !limits.HasCalendar(l) {
		return nil
	}
	_, err := b.Check(*l)
	return err
}

// maxValue returns the largest T, which is the highest count of a record.
func maxValue[T codec.Value]() uint64 { return uint64(^T(0)) }

// maxCount returns the largest Max, n and count.
func maxCount[T codec.Value]() uint64 { return min(maxValue[T](), window.Unlimited) }

// fits reports whether h can share a request with other hits: if the sum of all is less than largest - Max, the
// highest of their limits. A count to which a counter can't add that is over each limit, so all are denied.
// So a charge, whose Max is the largest, shares none. A hit without others fits, however large.
func fits(largest uint64, b coalesce.SharedHits, h coalesce.Hit) bool {
	most := largest - max(b.Max, h.Max)
	return b.Hits == 0 || b.Sum < most && h.Increment < most-b.Sum
}

// beyond returns the count of hits that a counter can't hold.
func beyond(count, sum uint64) uint64 {
	if sum > math.MaxUint64-count {
		return math.MaxUint64
	}
	return count + sum
}

// checkNumber returns a RangeError if n does not fit a value.
func checkNumber(field string, n uint64, size int) error {
	if err := limits.CheckNumber(field, n); err != nil || n <= valuesize.Max(size) {
		return err
	}
	return &window.RangeError{
		Field: field, Value: strconv.FormatUint(n, 10), Size: size,
		Bound: fmt.Sprintf("at most %d", valuesize.Max(size)),
		Needs: valuesize.Smallest(func(largest uint64) bool { return n <= largest }),
	}
}

// scaleError is the error for a scale whose windows can't be kept.
func scaleError(a window.Algorithm, scale time.Duration, size int) error {
	fit := func(largest uint64) bool { _, ok := slot.BandsFor(scale, largest); return ok }
	bound := "scales of whole units (1 ns to 1 h) whose double and 45 s more are at most %d units"
	switch a {
	case window.AlignedWindow:
		fit = func(largest uint64) bool { _, ok := timingFor(scale, false, largest); return ok }
		bound = "scales of whole or half units (1 ns to 1 h) whose double and a second more are at most %d units"
	case window.SlidingWindow:
		fit = func(largest uint64) bool { _, ok := timingFor(scale, true, largest); return ok }
		bound = "scales of whole units or thirds (1 ns to 1 h) whose triple and a second more are at most %d units"
	}
	return &window.RangeError{
		Field: "Scale", Value: scale.String(), Size: size,
		Bound: fmt.Sprintf(bound, valuesize.Max(size)),
		Needs: valuesize.Smallest(fit),
	}
}

// ErrTooLate says that a window could not be opened, ended or counted in while that was possible.
var ErrTooLate = errors.New("throttr: too late")

// overError is the error of hits that were not counted, or may not have been, because the window
// was over by the time that they could be.
func overError(scale time.Duration) error {
	return fmt.Errorf("%w: a window of %v was over by then", ErrTooLate, scale)
}

// parkingError is the error for a scale whose windows can't be kept unless the server is parked.
func parkingError(t timing, size int) error {
	return &window.RangeError{
		Field: "Scale", Value: t.scale.String(), Size: size,
		Bound: fmt.Sprintf("scales whose double and 12 s more are at most %d units, unless the server is parked", valuesize.Max(size)),
		Needs: valuesize.Smallest(func(largest uint64) bool {
			t, ok := timingFor(t.scale, t.sliding, largest)
			return ok && !t.needsParking()
		}),
	}
}
