package conn

import (
	"fmt"
	"net"
	"runtime"

	"github.com/throttr-go/throttr/codec"
)

// maxRounds is the number of writes after which a caller leaves the rest to the writer
// goroutine, so that it does not write for other callers without end.
const maxRounds = 4

// writer writes what a writeQueue gathers. It needs no mutex: only the goroutine that owns
// the write side of the queue uses it.
type writer[T codec.Value] struct {
	queue  *writeQueue[T]
	nc     net.Conn
	socket *socket // of nc; nil if it can't write without blocking
	fail   func(error)

	buf      []byte // what queue.gather returned last
	rest     []byte // the part of buf that the network has not accepted
	accepted uint64 // how many bytes the network has accepted in all
}

// gather prepares the next write. If there is none, it returns false, and the calling
// goroutine does not own the write side any more.
func (w *writer[T]) gather() bool {
	if cap(w.buf) > 4*writeSize { // after very large calls; their memory is not kept
		w.buf = nil
	}
	buf := w.queue.gather(w.buf[:0])
	if len(buf) == 0 {
		return false // another goroutine may be using w by now
	}
	w.buf, w.rest = buf, buf
	return true
}

// wrote accounts for a write of w.rest.
func (w *writer[T]) wrote(n int, err error) {
	w.rest = w.rest[n:]
	w.accepted += uint64(n)
	if err != nil {
		w.fail(fmt.Errorf("%w: %w", ErrLost, err))
	}
}

// writeNonblocking writes what is queued as far as the socket accepts it at once. The
// writer goroutine writes the rest.
func (w *writer[T]) writeNonblocking() {
	for range maxRounds {
		if !w.gather() {
			return
		}
		w.wrote(w.socket.write(w.rest))
		if len(w.rest) > 0 {
			break
		}
	}
	w.queue.handOver()
}

// writeBlocking writes what is queued, and waits for more. It returns when nothing will be
// queued any more.
func (w *writer[T]) writeBlocking() {
	for w.queue.await() {
		// Callers that are about to queue a call can share the write. With 64 callers it
		// makes the writer goroutine seven times as fast.
		runtime.Gosched()
		for len(w.rest) > 0 || w.gather() {
			n, err := w.nc.Write(w.rest)
			w.wrote(n, err)
			if err != nil {
				break // wrote has called Fail, so await returns false
			}
		}
	}
}
