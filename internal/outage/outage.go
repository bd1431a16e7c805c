// Package outage is for stores that may be away. A [Guard] is a backend around another one: no call waits for the store
// longer than it may, and while a [Circuit] is open, none does. A [Watch] tells the program when an outage begins and
// ends. What is decided meanwhile is the caller's matter.
package outage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/window"
)

// Error is a text. It matches window.ErrUnavailable.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Is reports whether target is window.ErrUnavailable.
func (e Error) Is(target error) bool { return target == window.ErrUnavailable }

// ErrStill says that an exchange has no answer because this process stood still, which says nothing about the store.
const ErrStill = Error("throttr: no answer: this process stood still")

// IsAway reports whether an error says that the store is away.
func IsAway(err error) bool {
	var network net.Error // context.DeadlineExceeded, too
	return errors.Is(err, window.ErrUnavailable) || errors.As(err, &network)
}

// Ended reports whether ctx has ended. The timer of a deadline may be late: others, such as that of a connection, may have
// ended a call by then.
func Ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// IsMistake reports whether an error is a mistake in the program, which says nothing about the store.
func IsMistake(err error) bool {
	return errors.Is(err, window.ErrRange) || errors.Is(err, window.ErrScale) ||
		errors.Is(err, window.ErrUnsupported) || errors.Is(err, window.ErrConfig)
}

// TimeoutError says that a call took longer than WithTimeout allows.
type TimeoutError struct {
	After time.Duration
	Err   error // of the call
}

// Error says why there is no answer.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("throttr: no answer within %v: %s", e.After, strings.TrimPrefix(e.Err.Error(), "throttr: "))
}

// Unwrap returns ErrUnavailable and the error of the call.
func (e *TimeoutError) Unwrap() []error { return []error{window.ErrUnavailable, e.Err} }

// WithoutKey returns what an error says of the store, without the call and the key, which may be personal.
func WithoutKey(err error) string {
	var late *TimeoutError
	var call *api.CallError
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("no answer within %v", late.After)
	case errors.As(err, &call):
		return call.Err.Error()
	}
	return err.Error()
}
