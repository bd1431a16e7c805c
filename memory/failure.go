package memory

import (
	"errors"

	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/window"
)

// fail adds a call and its key to an error, and counts it unless it is a mistake in the program. It
// returns nil for nil.
func (b *Backend) fail(call, key string, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, window.ErrScale) && !errors.Is(err, window.ErrRange) && !errors.Is(err, window.ErrUnsupported) {
		b.failed.Add(1)
	}
	return &callerr.Error{Package: "memory", Call: call, Key: key, Err: err}
}
