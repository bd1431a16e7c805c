package dial

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/throttr-go/throttr/internal/outage"
)

var (
	// ErrConnect says that no connection to a server could be made.
	ErrConnect error = outage.Error("throttr: can't connect")
	// ErrSilent says that a server has accepted a connection and sent no byte.
	ErrSilent = errors.New("the server accepts connections but answers nothing")
	// ErrValueSizeMismatch says that a server's value size is not the client's. The probe is
	// all that the server was sent.
	ErrValueSizeMismatch = errors.New("throttr: value size mismatch")
)

// ValueSizeError reports a server whose values are wider or narrower than the client's. It
// matches [ErrValueSizeMismatch].
type ValueSizeError struct {
	Server string // as in Config.Servers
	Client int    // the value size in bytes of the type that the client was made with, or that it has learned
	Actual int    // the value size in bytes that the server was compiled for

	teller string // the server that the client has learned Client from, if it has
}

// Error names both sizes, and the servers that have them.
func (e *ValueSizeError) Error() string {
	if e.teller != "" {
		return fmt.Sprintf("%v: %s has %d-byte values, and %s had %d-byte values; "+
			"servers that are used together must have the same", ErrValueSizeMismatch, e.Server, e.Actual, e.teller, e.Client)
	}
	return fmt.Sprintf("%v: the client has %d-byte values, and %s has %d-byte values (use uint%d)",
		ErrValueSizeMismatch, e.Client, e.Server, e.Actual, 8*e.Actual)
}

// Unwrap returns [ErrValueSizeMismatch].
func (e *ValueSizeError) Unwrap() error { return ErrValueSizeMismatch }

// ConnectError is a connection to a server that could not be made. It matches [ErrConnect].
type ConnectError struct {
	Server string // as in Config.Servers
	Err    error  // why
}

// Error names the server and the reason.
func (e *ConnectError) Error() string {
	err := e.Err
	for inner := (*ConnectError)(nil); errors.As(err, &inner); {
		err = inner.Err
	}
	return ErrConnect.Error() + " to " + e.Server + ": " + Reason(e.Server, err)
}

// Unwrap returns [ErrConnect] and the reason.
func (e *ConnectError) Unwrap() []error { return []error{ErrConnect, e.Err} }

// Reason returns the text of an error that concerns a server, for a text that names the module and
// the server already: it repeats neither.
func Reason(server string, err error) string {
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil && op.Addr.String() == strings.TrimPrefix(server, "unix://") {
		text = strings.ReplaceAll(text, op.Error(), op.Err.Error())
	}
	return strings.ReplaceAll(text, "throttr: ", "")
}
