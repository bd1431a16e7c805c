package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer is the ResponseWriter of a request whose status matters.
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

// Unwrap returns the ResponseWriter that the server has made.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter]. Responses of 1xx are followed by others, but for a 101.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// begin says that a response begins, if none has.
func (w *writer) begin() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// as returns w with the other methods that the ResponseWriter of the server has: of HTTP/1, of HTTP/2, or, behind
// http.TimeoutHandler, none. Those behind Unwrap count, too, as [http.ResponseController] finds them: otherwise it
// would go past w.
func (w *writer) as() http.ResponseWriter {
	flushes := isBehind[http.Flusher](w.ResponseWriter)
	hijacks := isBehind[http.Hijacker](w.ResponseWriter)
	switch {
	case flushes && hijacks:
		return struct {
			*writer
			flusher
			hijacker
			readerFrom
		}{w, flusher{w}, hijacker{w}, readerFrom{w}}
	case flushes:
		return struct {
			*writer
			flusher
		}{w, flusher{w}}
	case hijacks:
		return struct {
			*writer
			hijacker
		}{w, hijacker{w}}
	}
	return w
}

// isBehind reports whether w, or what it unwraps to, has the methods of M.
func isBehind[M any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(M); ok {
			return true
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
}

// flusher is a writer as an [http.Flusher].
type flusher struct{ w *writer }

// Flush implements [http.Flusher].
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError is for [http.ResponseController].
func (f flusher) FlushError() error {
	f.w.begin()
	return http.NewResponseController(f.w.ResponseWriter).Flush()
}

// readerFrom is a writer as an [io.ReaderFrom], with which files are sent.
type readerFrom struct{ w *writer }

// ReadFrom implements [io.ReaderFrom].
func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.w.begin()
	return io.Copy(r.w.ResponseWriter, src)
}

// hijacker is a writer as an [http.Hijacker].
type hijacker struct{ w *writer }

// Hijack implements [http.Hijacker].
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if h.w.status == 0 {
		h.w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, nil
}
