package testkit

import (
	"context"
	"errors"
	"testing"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/fixedwindow"
)

// RequireUnavailable fails the test if an error of a call is none of a server that is away, slow or faulty.
func RequireUnavailable(t testing.TB, err error) {
	t.Helper()
	// Windows of a short scale are refused while a server settles.
	if !errors.Is(err, throttr.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, fixedwindow.ErrTooLate) {
		t.Errorf("unexpected error: %v", err)
	}
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
