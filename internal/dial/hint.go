package dial

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"syscall"

	"github.com/throttr-go/throttr/codec"
)

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
