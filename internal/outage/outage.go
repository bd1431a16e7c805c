// Package outage has the errors that say that a store is away, and tells the program about it.
package outage

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/window"
)

// Error is a text. It matches window.ErrUnavailable.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Is reports whether target is window.ErrUnavailable.
func (e Error) Is(target error) bool { return target == window.ErrUnavailable }

// IsAway reports whether an error says that the store is away.
func IsAway(err error) bool {
	var network net.Error // context.DeadlineExceeded, too
	return errors.Is(err, window.ErrUnavailable) || errors.As(err, &network)
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
	var call *callerr.Error
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("no answer within %v", late.After)
	case errors.As(err, &call):
		return call.Err.Error()
	}
	return err.Error()
}
