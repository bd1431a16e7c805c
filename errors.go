package throttr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/window"
)

// Errors of a client and its backends. Match them with [errors.Is].
var (
	// ErrClosed says that the client or the backend has been closed.
	ErrClosed = window.ErrClosed
	// ErrConfig says that a Config, an option or a URL can't be used.
	ErrConfig = window.ErrConfig
	// ErrScale says that a scale is not one that a backend accepts: it is less than 1 ms, or the
	// backend can't store windows of it.
	ErrScale = window.ErrScale
	// ErrUnsupported says that a backend does not have an algorithm or a method. It matches
	// [errors.ErrUnsupported].
	ErrUnsupported = window.ErrUnsupported
	// ErrConnect says that no connection to a server could be made.
	ErrConnect = dial.ErrConnect
	// ErrValueSizeMismatch says that a server's value size is not the client's. Nothing but
	// the probe was sent to that server. See [ValueSizeError].
	ErrValueSizeMismatch = dial.ErrValueSizeMismatch
	// ErrUnavailable says that the store is away, on every backend. ErrConnect, ErrConnLost,
	// ErrStalled, ErrLockedUp and ErrProtocol match it. A request to a server that could not be
	// reached at the last attempt fails with it at once: it was not sent, or only by an earlier
	// attempt, see RequestError.Sent.
	ErrUnavailable = window.ErrUnavailable
	// ErrLockedUp says that a server accepts connections and answers nothing: two attempts to connect or
	// more, one after the other, got no byte until ConnectTimeout, for 10 s at least, and no connection received
	// anything meanwhile. The server has locked up (H12), and must be restarted; the client notices that
	// by itself. The error also matches ErrUnavailable or ErrConnect.
	ErrLockedUp = pool.ErrLockedUp
	// ErrProtocol says that a server sent bytes that can't be a response. The connection has
	// been closed.
	ErrProtocol = conn.ErrProtocol
	// ErrStalled says that requests were outstanding and no byte came for
	// Config.StallTimeout. The connection has been closed.
	ErrStalled = conn.ErrStalled
	// ErrConnLost says that the network ended a connection.
	ErrConnLost = conn.ErrLost
	// ErrOverloaded says that as many calls were waiting as may wait at a time: requests, callers or
	// hits on one window (Config.MaxQueued), callers of Wait (WithMaxWaiters), or hits of a backend
	// such as that of Redis. The request was not sent, or only at an earlier try: see
	// RequestError.Sent.
	ErrOverloaded = window.ErrOverloaded
	// ErrFull says that a backend has as many keys as it may have, see [WithMaxWindows] and the
	// MaxKeys of package memory. The call was not counted.
	ErrFull = window.ErrFull
	// ErrBatch says that a batch was used out of order: sent twice, or asked for responses
	// before it was sent.
	ErrBatch = errors.New("throttr: batch used out of order")
	// ErrUpdate says that an UPDATE names an attribute or a change that the protocol does
	// not have. A server would ignore it, and could respond with success.
	ErrUpdate = errors.New("throttr: no such attribute or change")
	// ErrTTL says that a TTL is zero, of an unknown unit, or over 292 years. It would make
	// the server lose the record or lock up (H13 in docs/internals/protocol.md).
	ErrTTL = errors.New("throttr: TTL out of range")
	// ErrRange says that a number is larger than a backend can store. See [RangeError].
	ErrRange = window.ErrRange
)

// RangeError is a field of a limit, an n or a count that is out of range. It matches [ErrRange]. Its fields are those
// of [window.RangeError].
type RangeError = window.RangeError

// ValueSizeError is a server whose values are wider or narrower than the client's. Its fields
// are Server, as in Config.Servers; Client, the size in bytes of the type that the client was
// made with, or that it has learned from a server; and Actual, the size in bytes that the server
// was compiled for. It matches [ErrValueSizeMismatch].
type ValueSizeError = dial.ValueSizeError

// ConnectError is a connection to a server that could not be made. Its fields are Server, as in
// Config.Servers, and Err. It matches [ErrConnect].
type ConnectError = dial.ConnectError

// RequestError is a request, or a batch of requests, that got no response.
type RequestError struct {
	Call   string   // the call of a backend, such as "hit"; empty for a method of a client
	Key    string   // of the call or the request, if it has one
	Server string   // as in Config.Servers
	Op     codec.Op // of a single request; 0 for a batch, and for a call of a backend
	// Sent says whether a byte of the request may have been handed to the network. If false, the
	// request has certainly not been executed; if true, it may have been.
	Sent bool
	Err  error // why; context.Canceled and the like included
}

// Error names the call, the key and the server, and says why there was no response and whether the
// request may have been executed.
func (e *RequestError) Error() string {
	call := cmp.Or(e.Call, "batch")
	if e.Call == "" && e.Op != 0 {
		call = e.Op.String()
	}
	fate := "not sent"
	if e.Sent {
		fate = "may have been executed"
	}
	return fmt.Sprintf("throttr: %sserver %s%s (%s)", api.CallText(call, e.Key), e.Server,
		failureText(e.Server, e.Err), fate)
}

// failureText returns the text that follows the name of a server: what is wrong with the server. It
// does not repeat the name.
func failureText(server string, err error) string {
	var connect *ConnectError
	switch {
	case errors.Is(err, ErrLockedUp):
		return " accepts connections but answers nothing: locked up (H12); only a restart helps"
	case errors.As(err, &connect):
		return " unavailable: " + dial.Reason(server, connect.Err)
	case errors.Is(err, ErrUnavailable):
		return " unavailable: " + strings.TrimPrefix(dial.Reason(server, err), "the store is unavailable: ")
	}
	return ": " + dial.Reason(server, err)
}

// maxKeyText is how many characters of a key are part of the text of an error.
const maxKeyText = 64

// callError returns err with the names of a call and its key.
func callError(call, key string, err error) error {
	return &api.CallError{Package: "throttr", Call: call, Key: key, Err: err}
}

// Unwrap returns the reason.
func (e *RequestError) Unwrap() error { return e.Err }

// SafeToRetry reports whether the request has certainly not been executed by a server.
func (e *RequestError) SafeToRetry() bool { return !e.Sent }

// Timeout reports whether the reason is a deadline that has passed, a network timeout, or a stalled
// server.
func (e *RequestError) Timeout() bool {
	var ne net.Error
	return errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, ErrStalled) ||
		errors.As(e.Err, &ne) && ne.Timeout()
}
