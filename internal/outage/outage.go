// Package outage is for stores that may be away. A [Guard] is a backend around another one: no call waits for the store
// longer than it may, and while a [Circuit] is open, none does. A [Watch] tells the program when an outage begins and
// ends. What is decided meanwhile is the caller's matter.
package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/window"
)

// Settings are the options for outages that programs give a limiter. A zero field is its default.
type Settings struct {
	Timeout  time.Duration // of a call; of an exchange, up to a quarter of its lease. Default: 250 ms
	Failures int           // in a row, which open a circuit. Default: 3
	Pause    time.Duration // the longest one between probes while calls come. Default: 320 ms
	Logger   *slog.Logger  // Default: slog.Default, as it is when there is something to log
}

// Silent is the Logger of programs that want no lines.
var Silent = slog.New(slog.DiscardHandler)

// Log returns the logger.
func (s *Settings) Log() *slog.Logger { return cmp.Or(s.Logger, slog.Default()) }

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

// Ended reports whether ctx has ended, or its deadline is over: the timer of a deadline may be late, and another one,
// such as that of a connection, may have ended a call before.
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

// CauseOf returns the cause of a call that is not made, because others have failed with it, without their call and
// key. It matches window.ErrUnavailable.
func CauseOf(cause error) error {
	why := cause
	var late *TimeoutError
	var call *api.CallError
	if errors.As(cause, &call) {
		why = call.Err
		if errors.As(cause, &late) {
			why = &TimeoutError{After: late.After, Err: call.Err}
		}
	}
	if !errors.Is(why, window.ErrUnavailable) {
		why = fmt.Errorf("%w: %w", window.ErrUnavailable, why)
	}
	return why
}

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

// Parts is implemented by backends of this module whose store has parts that can be away each for itself, such as
// servers or the nodes of a cluster, and by those that pass calls on to another backend. A [Guard] then has a circuit
// for each part, so that a part that is away does not stop the calls for the keys of the others. A backend without it
// is one part. So is one that wraps such a backend, if it embeds the interface window.Backend; a type that embeds the
// backend itself has its parts.
type Parts interface {
	// Part returns the name of the part that keeps a key now, such as the address of its server, and "" if there is
	// only one part or it is not known. It may change: then the circuit of another part counts. Part is called before
	// every call, by any number of goroutines: it asks nobody, waits for nothing, and should not allocate. Circuits
	// of a name stay for ever, so names are those of servers and not of connections.
	Part(key string) string
}

// PartOf returns the part of the store of a backend that keeps a key, "" if it has no parts.
func PartOf(b window.Backend, key string) string {
	if parts, ok := b.(Parts); ok {
		return parts.Part(key)
	}
	return ""
}

// Calls counts the calls of a backend, for its Stats.
type Calls struct {
	calls, errors atomic.Uint64
	away          atomic.Pointer[error] // of the last call; nil while the store responds
}

// Count counts a call.
func (c *Calls) Count(err error) {
	c.calls.Add(1)
	switch {
	case err == nil:
		if c.away.Load() != nil {
			c.away.Store(nil)
		}
		return
	case IsMistake(err), errors.Is(err, window.ErrClosed):
		return // no failure of the store
	case errors.Is(err, window.ErrUnavailable):
		away := err // a copy, so that err need not be on the heap
		c.away.Store(&away)
	}
	c.errors.Add(1)
}

// Stats returns what was counted of a store with a name.
func (c *Calls) Stats(name string) window.StoreStats {
	s := window.StoreStats{Name: name, Calls: c.calls.Load(), Errors: c.errors.Load()}
	if err := c.away.Load(); err != nil {
		s.Err = *err
	}
	return s
}
