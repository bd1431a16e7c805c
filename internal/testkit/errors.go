package testkit

import (
	"context"
	"errors"
	"testing"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/fixedwindow"
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
		{"protocol", throttr.ErrProtocol},
		{"stalled", throttr.ErrStalled},
		{"lost", throttr.ErrConnLost},
		{"connect", throttr.ErrConnect},
		{"unavailable", throttr.ErrUnavailable}, // which the others match, too
		{"deadline", context.DeadlineExceeded},
		{"too late", fixedwindow.ErrTooLate}, // of short windows, while a server settles
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	t.Errorf("unexpected error: %v", err)
	return "?"
}

// SafeToRetry reports whether err is of a request that was not sent.
func SafeToRetry(err error) bool {
	var failed *throttr.RequestError
	return errors.As(err, &failed) && failed.SafeToRetry()
}

// Timeout reports whether err is of a request whose time was over.
func Timeout(err error) bool {
	var failed *throttr.RequestError
	return errors.As(err, &failed) && failed.Timeout()
}
