package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

var _ window.Checker = (*Backend)(nil)

// Check implements [window.Checker]. The backend keeps every limit whose scale is at least 1 ms.
func (b *Backend) Check(scale time.Duration, _ uint64) error {
	if scale < window.MinScale {
		return scaleError(scale)
	}
	return nil
}
