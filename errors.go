package throttr

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/throttr-go/throttr/codec"
	windows "github.com/throttr-go/throttr/window"
)

var (
	// ErrClosed says that the client, or the backend, has been closed.
	ErrClosed = windows.ErrClosed
	// ErrConfig says that a Config, an option or a URL can't be used.
	ErrConfig = errors.New("throttr: invalid configuration")
	// ErrConnect says that no connection to a server could be made.
	ErrConnect = errors.New("throttr: can't connect")
	// ErrValueSizeMismatch says that a server's value size is not the client's.
	// Nothing but the probe was ever sent to that server. See [ValueSizeError].
	ErrValueSizeMismatch = errors.New("throttr: value size mismatch")
	// ErrProtocol says that a server sent bytes that can't be a response. The
	// connection has been closed.
	ErrProtocol = errors.New("throttr: protocol violation by the server")
	// ErrStalled says that requests were outstanding and no byte came for
	// Config.StallTimeout. The connection has been closed.
	ErrStalled = errors.New("throttr: server has stalled")
	// ErrUnavailable says that a server could not be reached a moment ago and is left
	// alone for now. The request was not sent.
	ErrUnavailable = errors.New("throttr: server is unavailable")
	// ErrConnLost says that a connection ended with requests outstanding.
	ErrConnLost = errors.New("throttr: connection lost")
	// ErrOverloaded says that Config.MaxWaiting requests were waiting already, or that a
	// backend has as many records to remove as WithMaxWindows lets it have. The request was
	// not sent.
	ErrOverloaded = errors.New("throttr: too many requests are waiting")
	// ErrBatch says that a batch was used out of turn: sent twice, or asked for
	// answers before it was sent.
	ErrBatch = errors.New("throttr: batch used out of turn")
	// ErrRefused says that a server has answered a SUBSCRIBE with failure.
	ErrRefused = errors.New("throttr: the server refuses the subscription")
	// ErrUpdate says that an UPDATE names an attribute or a change that the protocol does
	// not have. A server would ignore it, and could answer success.
	ErrUpdate = errors.New("throttr: no such attribute or change")
	// ErrTTL says that a TTL is zero, of an unknown unit, or beyond 292 years, and
	// would make the server lose the record or lock up (H13 in docs/protocol.md).
	ErrTTL = errors.New("throttr: TTL out of range")
)

// RequestError is a request, or a batch of them, that got no answer.
type RequestError struct {
	Server string   // as in Config.Servers
	Op     codec.Op // of a single request; 0 for a batch
	// Sent tells whether any byte of the request was handed to the network. If
	// false, it has certainly not been executed; if true, it may have been.
	Sent bool
	Err  error // why; context.Canceled and the like included
}

// Error tells the server, the request, whether it may have been executed, and why
// it failed.
func (e *RequestError) Error() string {
	what := "batch"
	if e.Op != 0 {
		what = e.Op.String()
	}
	fate := "not sent"
	if e.Sent {
		fate = "may have been executed"
	}
	return fmt.Sprintf("throttr: %s to %s (%s): %v", what, e.Server, fate, e.Err)
}

// Unwrap returns the reason.
func (e *RequestError) Unwrap() error { return e.Err }

// ValueSizeError is a server whose values are wider or narrower than the
// client's. It matches [ErrValueSizeMismatch].
type ValueSizeError struct {
	Server string
	Client int // value size in bytes of the type that the client was made with
	Actual int // value size in bytes that the server was compiled for
}

// Error tells both sizes.
func (e *ValueSizeError) Error() string {
	return fmt.Sprintf("%v: the client's values are %s wide, those of %s %s (use uint%d)",
		ErrValueSizeMismatch, byteCount(e.Client), e.Server, byteCount(e.Actual), 8*e.Actual)
}

// Unwrap returns [ErrValueSizeMismatch].
func (e *ValueSizeError) Unwrap() error { return ErrValueSizeMismatch }

func byteCount(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// SafeToRetry reports whether the request that failed with err has certainly not
// been executed by a server.
func SafeToRetry(err error) bool {
	var re *RequestError
	if errors.As(err, &re) {
		return !re.Sent
	}
	return errors.Is(err, ErrConnect)
}

// Timeout reports whether err is a deadline that passed, a network timeout, or a
// stalled server.
func Timeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStalled) {
		return true
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
