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
