package dial

import (
	"errors"
	"net"
	"strings"
)

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
