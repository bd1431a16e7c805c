package dial

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/throttr-go/throttr/codec"
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

// hinted is an error whose text says what is usually wrong if it occurs.
type hinted struct {
	hint string
	err  error
}

// Error returns the hint.
func (e *hinted) Error() string { return e.hint }

// Unwrap returns the error that the hint is about.
func (e *hinted) Unwrap() error { return e.err }

// tlsAlert is the first byte of an alert, which a TLS server sends if it gets no handshake. Its
// second byte is the major version of the protocol, which is always 3.
const tlsAlert = 21

// hintHandshake adds a hint to the error of a TLS handshake.
func hintHandshake(err error) error {
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record) && bytes.HasPrefix(record.RecordHeader[:], []byte("HTTP")):
		return &hinted{"an HTTP server without TLS responds there, not a Throttr server", err}
	case errors.As(err, &record):
		return &hinted{"the server does not speak TLS: use throttr://, or leave Config.TLS nil", err}
	case hungUp(err):
		return &hinted{"the server closed the connection during the TLS handshake; if it does not speak TLS, use throttr://", err}
	}
	return err
}

// hintProbe adds a hint to the error of a probe. Head has the first bytes that were received.
func hintProbe(err error, head []byte, withTLS bool) error {
	switch {
	case bytes.HasPrefix(head, []byte("HTTP/")):
		return &hinted{"an HTTP server responds there, not a Throttr server", err}
	case len(head) > 1 && head[0] == '-' && 'A' <= head[1] && head[1] <= 'Z':
		return &hinted{"a Redis server responds there, not a Throttr server: use package redisbackend", err}
	case len(head) > 1 && head[0] == tlsAlert && head[1] == 3:
		return &hinted{"the server wants TLS: use throttrs://, or set Config.TLS", err}
	case len(head) > 0 && head[0] <= 1 && errors.Is(err, codec.ErrMalformed): // it begins with a status
		return &hinted{"the responses to the first requests are out of order: a Throttr server needs one thread, run it with --threads 0", err}
	case len(head) == 0 && hungUp(err) && !withTLS:
		return &hinted{"the server closed the connection and sent nothing; if it wants TLS, use throttrs://", err}
	}
	return err
}

// hungUp reports whether err says that the other side has closed the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
