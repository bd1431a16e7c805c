package httplimit

import (
	"bufio"
	"errors"
	"net"
	"net/http"
)

// writer is the ResponseWriter of a request whose status matters. It flushes and hijacks as far as what is behind it
// can.
type writer struct {
	http.ResponseWriter
	status int // of the response; 0: none yet
}

// statusOf returns the status of a response whose handler has returned, or has panicked: after a response has begun,
// the client has got that.
func (w *writer) statusOf(returned bool) int {
	switch {
	case w.status != 0:
		return w.status
	case !returned:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// Unwrap returns the ResponseWriter that the server has made, for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter]. Responses of 1xx are followed by others, but for a 101.
func (w *writer) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status) // it panics if there is no such status
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// begin says that a response begins, if none has.
func (w *writer) begin(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *writer) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.begin(http.StatusOK)
	}
	return err
}

// Hijack implements [http.Hijacker].
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
