package conn

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A caller that has a connection to itself reads its own response. Otherwise the reader
// goroutine would have to be woken for the response, and the caller by the reader, which
// takes as long as a fast server takes to respond.

const (
	// inlineIdle is how long the read side stays without an owner when no caller reads. The
	// end of the connection may go unnoticed for this time.
	inlineIdle = 250 * time.Millisecond
	// probeInterval is how old the last check for the end of the connection may be when a
	// caller becomes the owner.
	probeInterval = time.Millisecond
)

// The owners of the read side.
const (
	readGoroutine uint32 = iota // the reader goroutine
	readIdle                    // none: no response is due
	readInline                  // a caller, which reads its own response
)

// readTurn decides which goroutine owns the read side of a connection: the reader
// goroutine, a caller, or none.
//
// It has no mutex. Owner is readIdle only while no response is due, save for a moment: a
// goroutine releases the read side first, and then looks for calls; a caller queues its
// call first, and then looks for an owner. So one of the two notices the other, and recalls
// the reader goroutine. This goroutine does not end while another one owns the read side.
type readTurn struct {
	owner atomic.Uint32
	reads atomic.Uint64 // how often a caller has become the owner
	wake  chan struct{} // one element: the reader goroutine may have become the owner
}

// acquire makes a caller the owner, if there is none.
func (t *readTurn) acquire() bool {
	if !t.owner.CompareAndSwap(readIdle, readInline) {
		return false
	}
	t.reads.Add(1)
	return true
}

// recall makes the reader goroutine the owner, if there is none.
func (t *readTurn) recall() {
	if t.owner.Load() == readIdle && t.owner.CompareAndSwap(readIdle, readGoroutine) {
		select {
		case t.wake <- struct{}{}:
		default: // an element that is not received yet does
		}
	}
}

// release ends the ownership of the calling goroutine. It must then recall the reader
// goroutine if there is anything to read.
func (t *readTurn) release() { t.owner.Store(readIdle) }

// await returns when the reader goroutine is the owner again. It becomes the owner by
// itself when no caller has read for inlineIdle.
func (t *readTurn) await() {
	timer := time.NewTimer(inlineIdle)
	defer timer.Stop()
	for reads := t.reads.Load(); t.owner.Load() != readGoroutine; {
		select {
		case <-t.wake:
		case <-timer.C:
			if n := t.reads.Load(); n != reads {
				reads = n
			} else {
				t.owner.CompareAndSwap(readIdle, readGoroutine)
			}
			timer.Reset(inlineIdle)
		}
	}
}

// inlineReader is what a caller needs for reading its own response. Turn and watch are safe
// for concurrent use as their types say; only the owner of the read side uses probed.
type inlineReader struct {
	turn   readTurn
	watch  contextWatch
	probed time.Time // when a caller last checked whether the connection has ended
}

// probeDue reports whether a caller that has become the owner is to check whether the
// connection ended while nobody was reading.
func (r *inlineReader) probeDue() bool {
	now := time.Now()
	if now.Sub(r.probed) < probeInterval {
		return false
	}
	r.probed = now
	return true
}

// contextWatch interrupts the reads of an inline reader when its context ends.
//
// A context is registered once if it is that of several calls in succession, so that a
// caller that passes the same one each time does not pay for it.
type contextWatch struct {
	nc net.Conn

	// Only the owner of the read side uses these fields.
	registered <-chan struct{} // Done of the context that is registered; nil if none
	last       <-chan struct{} // Done of the context of the last inline reader
	unregister func() bool

	mu          sync.Mutex // guards the fields below
	reading     bool       // an inline reader is to be interrupted
	interrupted bool       // nc has a read deadline
}

// start has reads end when ctx does, until stop is called.
func (w *contextWatch) start(ctx context.Context) {
	done := ctx.Done()
	if done != w.registered {
		w.forget()
	}
	if done == nil {
		return
	}
	w.mu.Lock()
	w.reading = true
	w.mu.Unlock()
	if w.registered == nil {
		w.registered, w.unregister = done, context.AfterFunc(ctx, w.interrupt)
	}
}

// stop ends start, and leaves nc without a deadline. Ctx stays registered if it was that
// of the inline reader before, too.
func (w *contextWatch) stop(ctx context.Context) {
	done := ctx.Done()
	if done != w.last {
		w.forget()
	}
	w.last = done
	if done == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = false
	if w.interrupted {
		w.interrupted = false
		w.nc.SetReadDeadline(time.Time{})
	}
}

// forget unregisters the context.
func (w *contextWatch) forget() {
	if w.registered != nil {
		w.unregister()
		w.registered, w.unregister = nil, nil
	}
}

// interrupt runs when the registered context ends.
func (w *contextWatch) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading {
		w.interrupted = true
		w.nc.SetReadDeadline(time.Unix(1, 0))
	}
}
