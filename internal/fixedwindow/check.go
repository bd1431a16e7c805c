package fixedwindow

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Algorithms are those that servers can keep exactly. For the others, there would have to be an UPDATE
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
		if l, ok := b.layouts.get(scale, maxValue[T]()); ok {
			return l.bands.Unit, nil
		}
	} else if _, ok := timingFor(scale, a == window.SlidingWindow, maxValue[T]()); ok {
		return 0, nil
	}
	return 0, scaleError(a, scale, codec.Size[T]())
}

// checkMax is Check for a limit whose name, scale and algorithm are known to be valid.
func (b *Backend[T]) checkMax(l *window.Limit) error {
	if l.Max <= maxCount[T]() && l.Burst == 0 {
		return nil
	}
	_, err := b.Check(*l)
	return err
}
