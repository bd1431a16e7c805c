package fixedwindow

import (
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/window"
)

// Check returns the error of a Hit with this scale and limit if no server, or none of this value size,
// can keep such a limit. It asks no server.
func (b *Backend[T]) Check(scale time.Duration, limit uint64) error {
	if err := window.CheckScale(scale); err != nil {
		return err
	}
	if err := b.unsupported(); err != nil {
		return err
	}
	_, ok := b.layouts.get(scale, maxValue[T]())
	if b.aligned() {
		_, ok = timingFor(scale, b.sliding(), maxValue[T]())
	}
	if !ok {
		return scaleError(b.algorithm, scale, codec.Size[T]())
	}
	return checkCount("limit", limit, codec.Size[T]())
}

// Algorithm returns the algorithm of all windows.
func (b *Backend[T]) Algorithm() window.Algorithm { return b.algorithm }

// aligned reports whether there is a record for each aligned window.
func (b *Backend[T]) aligned() bool { return b.algorithm == window.Aligned || b.sliding() }

// sliding reports whether two aligned windows make a sliding one.
func (b *Backend[T]) sliding() bool { return b.algorithm == window.Sliding }

func (b *Backend[T]) unsupported() error { return CheckAlgorithm(b.algorithm) }

// CheckAlgorithm returns an error if servers can't keep an algorithm exactly: an UPDATE that depends on
// the value, or on a time, does not exist.
func CheckAlgorithm(a window.Algorithm) error {
	switch a {
	case window.PerKey, window.Aligned, window.Sliding:
		return nil
	default:
		return fmt.Errorf("%w: Throttr servers can't keep the algorithm %q; they keep %q, %q and %q, and package memory and Redis keep all",
			errors.ErrUnsupported, a, window.PerKey, window.Aligned, window.Sliding)
	}
}

// Precision returns how much later than the end of a window of a scale its ExpiresAt may be, but for
// the time that the call took.
func (b *Backend[T]) Precision(scale time.Duration) time.Duration {
	if l, ok := b.layouts.get(scale, maxValue[T]()); ok && !b.aligned() {
		return l.Unit
	}
	return 0
}
