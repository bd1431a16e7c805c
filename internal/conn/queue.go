package conn

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/window"
)

const (
	// writeSize is the number of bytes at which a write is large enough. Calls that are
	// queued wait for the next one.
	writeSize = 64 << 10
	// packetSize is the number of bytes at the beginning of a write that certainly travel
	// in one packet: it fits any common MTU.
	packetSize = 1400
)

// writeOwner is the goroutine that owns the write side of a connection.
type writeOwner uint8

const (
	writeIdle      writeOwner = iota // none
	writeInline                      // a caller or a reader, whose writes do not block
	writeGoroutine                   // the writer goroutine; it may not have noticed yet
)

// writeQueue holds the calls that wait to be written, and accounts for those in flight. It
// decides which calls a write carries, and which goroutine writes.
//
// Invariants:
//   - Calls are put in flight in the order in which their frames are written.
//   - A goroutine owns the write side from push, await or accountFor until gather finds
//     nothing to write, or until handOver. Only the owner calls gather, so that only one
//     goroutine writes at a time.
//   - At most maxInFlight requests are in flight, unless a single call has more of them.
//     Such a call is in flight by itself.
//   - If a call can be written, a goroutine owns the write side.
//
// mu guards all fields below it. Its holder does not block and calls no code outside of
// the package, except for Call.Stale.
type writeQueue[T codec.Value] struct {
	maxInFlight int
	maxQueued   int
	nonblocking bool // callers and readers can write without blocking
	finisher    *finisher[T]

	mu      sync.Mutex
	ready   sync.Cond // the writer goroutine waits on it
	owner   writeOwner
	closed  error // why nothing is queued or written any more, or nil
	closing error // why nothing is queued any more, and what the reason will be when no call is left

	queued         fifo[*Call[T]] // calls that wait to be written
	queuedRequests int            // requests of these, without those of abandoned calls
	abandoned      int            // how many of these calls have been abandoned
	launched       fifo[*Call[T]] // calls in flight that the reader has not fetched yet
	inFlight       int            // requests without a response
	inFlightBytes  int            // size of the calls in flight, each until its last response has come
	offset         uint64         // size of all calls that were ever put in flight
	received       uint64         // frames that the connection has received
	lastDone       int            // calls that the last read of the connection has completed

	stall watchdog
	uses  uint64    // calls queued, pings aside
	seen  uint64    // uses when idleFor was last called
	since time.Time // when idleFor last found that uses had changed
}

// push queues a call. If writes is true, the caller owns the write side. Busy reports
// whether other callers are using the connection now.
func (q *writeQueue[T]) push(cl *Call[T]) (writes, busy bool, err error) {
	n := cl.Len()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil || q.closing != nil {
		return false, false, ErrGone
	}
	if q.queuedRequests > 0 && q.queuedRequests+n > q.maxQueued {
		return false, false, window.ErrOverloaded
	}
	// If several calls were done at the same time, their callers are likely to make the next
	// ones at the same time.
	busy = q.inFlight > 0 || q.queued.Len() > 0 || q.lastDone > 1
	cl.queue = q
	q.queued.Push(cl)
	q.queuedRequests += n
	if !cl.Unasked {
		q.uses++
	}
	q.finisher.load.add(n, 1)
	return q.acquireWriteSide(), busy, nil
}

// acquireWriteSide finds an owner for the write side if it has none. It returns true if this is
// the calling goroutine. It wakes the writer goroutine if writes may block. The mutex is held.
func (q *writeQueue[T]) acquireWriteSide() bool {
	if q.owner != writeIdle {
		return false
	}
	if !q.nonblocking {
		q.owner = writeGoroutine
		q.ready.Signal()
		return false
	}
	q.owner = writeInline
	return true
}

// handOver gives the write side to the writer goroutine.
func (q *writeQueue[T]) handOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.owner = writeGoroutine
	q.ready.Signal()
}

// await returns true when the writer goroutine owns the write side, and false when there
// will be nothing to write any more and no goroutine is writing.
func (q *writeQueue[T]) await() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.owner == writeInline: // wait until it hands over, or has nothing left to write
		case q.closed != nil, q.closing != nil && q.inFlight == 0 && q.queued.Len() == 0:
			return false
		case q.owner == writeGoroutine:
			return true
		}
		q.ready.Wait()
	}
}

// gather appends the frames of the next write to buf, and puts their calls in
// flight. If there is nothing to write, the write side has no owner any more.
func (q *writeQueue[T]) gather(buf []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	exclusive := q.inFlight == 0 // nothing was in flight, and the write has only exclusive calls so far
gathering:
	for q.closed == nil && q.queued.Len() > 0 && len(buf) < writeSize {
		cl := q.queued.At(0)
		switch {
		case cl.isAbandoned():
			q.failQueued(nil)
			continue
		case !q.fits(cl, exclusive, len(buf)):
			break gathering
		case cl.Stale != nil && cl.Stale():
			q.failQueued(ErrStale)
			continue
		case !cl.markLaunched():
			continue // it has just been abandoned
		}
		q.queued.Pop()
		q.queuedRequests -= cl.Len()
		exclusive = exclusive && cl.Atomicity == Exclusive
		buf = q.launch(cl, buf)
	}
	if len(buf) > 0 {
		q.stall.arm()
		return buf
	}
	q.owner = writeIdle
	if q.closed != nil || q.closing != nil {
		q.ready.Signal()
	}
	return buf
}

// failQueued ends the oldest queued call, of which no byte has been sent. If it has been abandoned, nobody
// sees the reason. The mutex is held.
func (q *writeQueue[T]) failQueued(reason error) {
	cl := q.queued.Pop()
	n := cl.Len()
	if q.finisher.fail(cl, reason, false) {
		q.queuedRequests -= n
	} else {
		q.abandoned--
	}
}

// freeRoom makes the room of a queued call of n requests that has been abandoned free for others.
//
// The call itself is dropped when it is the oldest, or when most queued calls have been
// abandoned: callers that return soon must not fill the memory if the server does not read.
func (q *writeQueue[T]) freeRoom(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queuedRequests -= n
	q.abandoned++
	if q.abandoned > max(64, q.queued.Len()/2) {
		q.dropAbandoned()
	}
	if q.owner == writeIdle && q.queued.Len() > 0 && q.queued.At(0).isAbandoned() {
		// It may have been what kept the next call from being written.
		q.owner = writeGoroutine
		q.ready.Signal()
	}
}

// dropAbandoned drops all abandoned calls from the queue. The mutex is held.
func (q *writeQueue[T]) dropAbandoned() {
	for range q.queued.Len() {
		if q.queued.At(0).isAbandoned() {
			q.failQueued(nil)
		} else {
			q.queued.Push(q.queued.Pop())
		}
	}
}

// fits reports whether a call may be put in flight now, behind size bytes of the same write.
// The mutex is held.
func (q *writeQueue[T]) fits(cl *Call[T], exclusive bool, size int) bool {
	if q.inFlight > 0 && q.inFlight+cl.Len() > q.maxInFlight {
		return false
	}
	switch cl.Atomicity {
	case SingleRead:
		return q.inFlight == 0 || q.inFlightBytes+len(cl.frames) <= codec.MaxFrame
	case Exclusive:
		return exclusive && (size == 0 || size+len(cl.frames) <= packetSize)
	default:
		return true
	}
}

// launch puts a call in flight, and appends its frames to the write. The mutex is held.
func (q *writeQueue[T]) launch(cl *Call[T], buf []byte) []byte {
	cl.offset, cl.before = q.offset, q.received
	q.offset += uint64(len(cl.frames))
	q.inFlight += cl.Len()
	q.inFlightBytes += len(cl.frames)
	q.launched.Push(cl)
	return append(buf, cl.frames...)
}

// fetch moves the calls that were put in flight since the last fetch to the reader's queue, which
// must be empty.
func (q *writeQueue[T]) fetch(into *fifo[*Call[T]]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*into, q.launched = q.launched, *into
}

// accountFor accounts for the responses that have arrived. If calls are queued and no
// goroutine owns the write side, writes is true, and the calling goroutine owns it.
func (q *writeQueue[T]) accountFor(a arrivals) (writes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.received += uint64(a.frames)
	q.inFlight -= a.responses
	q.inFlightBytes -= a.bytes
	q.lastDone = a.calls
	q.stall.progress++
	if q.closing != nil {
		q.ready.Signal()
	}
	return q.queued.Len() > 0 && q.acquireWriteSide()
}

// close ends the queue for the given reason, unless it is closed already.
func (q *writeQueue[T]) close(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = reason
	}
	q.ready.Signal()
}

// closeWhenEmpty rejects further calls, and ends await when all calls are done. Reason is then that of
// the end.
func (q *writeQueue[T]) closeWhenEmpty(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing == nil || reason != ErrGone { // Close overrides Retire
		q.closing = reason
	}
	q.ready.Signal()
}

// failAllQueued fails the calls that are queued.
func (q *writeQueue[T]) failAllQueued(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.queued.Len() > 0 {
		q.failQueued(reason)
	}
	q.ready.Signal()
}

// closingReason returns the reason of closeWhenEmpty, or nil.
func (q *writeQueue[T]) closingReason() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

// reason returns why the queue is closed, or nil.
func (q *writeQueue[T]) reason() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// open reports whether calls can be queued.
func (q *writeQueue[T]) open() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed == nil && q.closing == nil
}

// usage returns how many requests are in flight and queued.
func (q *writeQueue[T]) usage() (inFlight, queued int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight, q.queuedRequests
}

// quiet reports whether the queue is open and no call is queued or in flight.
func (q *writeQueue[T]) quiet() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed == nil && q.inFlight == 0 && q.queued.Len() == 0
}

// idleFor returns for how long no call has been pushed, pings aside. The time begins when
// idleFor first notices, so that a call need not read the clock.
func (q *writeQueue[T]) idleFor() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.uses != q.seen {
		q.seen, q.since = q.uses, time.Now()
	}
	return time.Since(q.since)
}

// stalled is a check of the watchdog. It returns true if responses are due and nothing has
// come for too long, and how many.
func (q *writeQueue[T]) stalled() (bool, int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed == nil && q.stall.check(q.inFlight > 0), q.inFlight
}

// drain fails the calls that are left, after the queue has been closed and nobody reads or
// writes any more. The reader has fetched some of those in flight. A call in flight may have been
// executed if it begins within the bytes that the network has accepted in all.
func (q *writeQueue[T]) drain(fetched *fifo[*Call[T]], accepted uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stall.stop()
	for _, calls := range []*fifo[*Call[T]]{fetched, &q.launched} {
		for calls.Len() > 0 {
			cl := calls.Pop()
			q.finisher.fail(cl, q.closed, cl.offset < accepted)
		}
	}
	for q.queued.Len() > 0 {
		q.failQueued(q.closed)
	}
	q.inFlight = 0
}

// Load is the work of a connection: the requests that are queued or in flight, and the
// calls that they belong to. The more requests, the larger the number.
type Load int64

// callBits is the number of bits for calls. The bits above them count requests.
const callBits = 32

// Requests returns the number of requests.
func (l Load) Requests() int { return int(l >> callBits) }

// Calls returns the number of calls.
func (l Load) Calls() int { return int(l & (1<<callBits - 1)) }

// loadCounter is a Load that changes in one atomic step.
type loadCounter struct{ n atomic.Int64 }

func (c *loadCounter) add(requests, calls int) { c.n.Add(int64(requests)<<callBits + int64(calls)) }

func (c *loadCounter) remove(requests, calls int) { c.add(-requests, -calls) }

func (c *loadCounter) get() Load { return Load(c.n.Load()) }
