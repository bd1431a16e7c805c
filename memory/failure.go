package memory

import (
	"fmt"
	"strings"
)

// failure is the error of a call. Its text names the call and the key.
type failure struct {
	call, key string
	err       error
}

// failed adds a call and its key to an error. It returns nil for nil.
func failed(call, key string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{call, key, err}
}

// Error cuts the key to 64 characters.
func (f *failure) Error() string {
	text := strings.TrimPrefix(strings.TrimPrefix(f.err.Error(), "memory: "), "throttr: ")
	return fmt.Sprintf("memory: %s %.64q: %s", f.call, f.key, text)
}

// Unwrap returns the error of the call.
func (f *failure) Unwrap() error { return f.err }
