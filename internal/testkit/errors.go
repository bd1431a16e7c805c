package testkit

import (
	"context"
	"errors"
	"testing"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/fixedwindow"
)

// ErrorClass returns the text of the first sentinel that an error of a call matches. It fails the test if there is
// none.
func ErrorClass(t testing.TB, err error) string {
	t.Helper()
	for _, class := range []error{
		throttr.ErrValueSizeMismatch, throttr.ErrProtocol, throttr.ErrStalled, throttr.ErrConnLost, throttr.ErrConnect,
		throttr.ErrUnavailable, // which the others match, too
		context.DeadlineExceeded,
		fixedwindow.ErrTooLate, // of short windows, while a server settles
	} {
		if errors.Is(err, class) {
			return class.Error()
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
