// Package outage has the type of errors that say that a store is away.
package outage

import "github.com/throttr-go/throttr/window"

// Error is a text. It matches window.ErrUnavailable.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Is reports whether target is window.ErrUnavailable.
func (e Error) Is(target error) bool { return target == window.ErrUnavailable }
