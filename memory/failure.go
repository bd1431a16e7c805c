package memory

import (
	"errors"
	"fmt"
	"strings"

	"github.com/throttr-go/throttr/window"
)

// failure is the error of a call. Its text names the call and the key.
type failure struct {
	call, key string
	err       error
}

// fail adds a call and its key to an error, and counts it unless it is a mistake in the program. It
// returns nil for nil.
func (b *Backend) fail(call, key string, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, window.ErrScale) && !errors.Is(err, window.ErrRange) && !errors.Is(err, window.ErrUnsupported) {
		b.failed.Add(1)
	}
	return &failure{call, key, err}
}

// Error cuts the key to 64 characters.
func (f *failure) Error() string {
	return fmt.Sprintf("memory: %s %.64q: %s", f.call, f.key, strings.TrimPrefix(f.err.Error(), "throttr: "))
}

// Unwrap returns the error of the call.
func (f *failure) Unwrap() error { return f.err }
