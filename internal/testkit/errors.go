package testkit

import (
	"context"
	"errors"
	"testing"

	"github.com/throttr-go/throttr"
)

// ErrorClass names the sentinel that an error of a call matches. It fails the test if there is
// none.
func ErrorClass(t testing.TB, err error) string {
	t.Helper()
	for _, c := range []struct {
		name string
		err  error
	}{
		{"value size", throttr.ErrValueSizeMismatch},
		{"unavailable", throttr.ErrUnavailable},
		{"protocol", throttr.ErrProtocol},
		{"stalled", throttr.ErrStalled},
		{"lost", throttr.ErrConnLost},
		{"connect", throttr.ErrConnect},
		{"deadline", context.DeadlineExceeded},
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	t.Errorf("unexpected error: %v", err)
	return "?"
}
