package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/window"
)

// Check returns the error of a Hit with this scale and limit if no server of this value size can
// keep such a limit. It asks no server.
func (b *Backend[T]) Check(scale time.Duration, limit uint64) error {
	if err := window.CheckScale(scale); err != nil {
		return err
	}
	_, ok := b.layouts.get(scale, maxValue[T]())
	if b.algorithm == window.Aligned {
		_, ok = timingFor(scale, maxValue[T]())
	}
	if !ok {
		return scaleError(b.algorithm, scale, codec.Size[T]())
	}
	return checkCount("limit", limit, codec.Size[T]())
}

// Precision returns how much later than the end of a window of a scale its ExpiresAt may be, but for
// the time that the call took.
func (b *Backend[T]) Precision(scale time.Duration) time.Duration {
	if l, ok := b.layouts.get(scale, maxValue[T]()); ok && b.algorithm != window.Aligned {
		return l.Unit
	}
	return 0
}
