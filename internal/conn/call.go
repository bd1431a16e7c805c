package conn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
)

// Response is a decoded response of any kind.
type Response[T codec.Value] struct {
	OK    bool // success, or found
	Quota T
	TTL   codec.TTL[T]
	Value []byte // of a GET, a copy of the value; of a rarer request, a copy of the response
}

// Atomicity is what a call demands of the way in which its requests reach the server. A
// server executes what one read returns, up to 8096 bytes, without requests of other
// connections in between.
type Atomicity uint8

const (
	// Interruptible calls demand nothing.
	Interruptible Atomicity = iota
	// SingleRead calls fit one read of the server together with all that is in flight. In
	// rare cases the server reads the packets of a write one by one, so that an
	// interruption must do no harm.
	SingleRead
	// Exclusive calls are never interrupted. They wait until nothing is in flight, so that
	// the server has nothing left to read, and begin a write that fits one packet.
	Exclusive
)

// The phases of a call. It is unsent first, then launched unless it fails before, and ends as
// done or as abandoned.
const (
	phaseUnsent    uint32 = iota // it is not queued yet, or waits to be written
	phaseLaunched                // it is in a write, so bytes of it may have left
	phaseDone                    // it has its responses, or has failed; its caller has it
	phaseAbandoned               // its caller has returned; the connection recycles it
)

// Call is one or more requests that travel together. One write sends them, and the call is
// done when each of them has its response. A call comes from a [CallPool]. It belongs to
// its caller until Enqueue, and again when Wait returns that it is done.
type Call[T codec.Value] struct {
	Atomicity Atomicity
	Key       []byte        // scratch space for a key on its way into a frame
	Responses []Response[T] // once done without an error: one for each request
	// MostTTL is the largest amount of a TTL that a QUERY of the call can return. A response with a
	// larger one belongs to another request. The unit tells nothing: a server reads it from a record
	// that may be gone by then (H19). 0 means that none is known.
	MostTTL uint64
	Parks   bool // the last request keeps the server parked; the pool appends it and drops its response
	Unasked bool // made by the client itself: it does not count as a use of the connection

	// Stale reports whether it is too late to send the call, which then fails with
	// ErrStale. It runs just before the call is written, must be quick, and must not use
	// the connection. Nil means that it is never too late.
	Stale func() bool

	frames  []byte       // the encoded requests
	kinds   []codec.Kind // the kinds of their responses
	creates bool         // there is an INSERT or SET

	phase atomic.Uint32
	done  chan struct{} // gets one element when phase becomes phaseDone
	err   error         // once done: why there are no responses
	sent  bool          // once done: whether a failed call may have been executed

	conn   *Conn[T] // where it was queued last
	inline bool     // Wait reads the responses itself
	offset uint64   // where in the connection's stream of requests the call begins
	before uint64   // frames that the connection had received when the call was written
	next   *Call[T] // in a callList
}

// CallPool recycles calls. The zero value is ready for use.
type CallPool[T codec.Value] struct{ pool sync.Pool }

// Get returns an empty call.
func (p *CallPool[T]) Get() *Call[T] {
	if c, ok := p.pool.Get().(*Call[T]); ok {
		return c
	}
	return &Call[T]{done: make(chan struct{}, 1)}
}

// Put recycles a call. Neither the call nor its Responses may be used any more.
func (p *CallPool[T]) Put(c *Call[T]) {
	c.empty()
	p.pool.Put(c)
}

// empty empties c.
func (c *Call[T]) empty() {
	c.conn = nil
	const keep = 4 << 10 // larger buffers, of large batches, are not kept
	if cap(c.frames) > keep || cap(c.Responses) > keep/64 {
		c.frames = nil
		c.Responses = nil
		c.kinds = nil
	}
	c.Atomicity = Interruptible
	c.MostTTL = 0
	c.Stale = nil
	c.Parks = false
	c.Unasked = false
	c.creates = false
	c.frames, c.kinds = c.frames[:0], c.kinds[:0]
	c.Rewind()
}

// Rewind prepares a call that is done for being sent once more.
func (c *Call[T]) Rewind() {
	clear(c.Responses)
	c.Responses = c.Responses[:0]
	c.err, c.sent = nil, false
	c.phase.Store(phaseUnsent)
}

// Add encodes a request. On an error the call is unchanged. The type of the request is a
// type parameter, so that the request does not escape to the heap.
func Add[T codec.Value, R codec.Request](c *Call[T], r R) error {
	frames, err := r.AppendBinary(c.frames)
	if err != nil {
		return err
	}
	c.note(frames[len(c.frames):], r.ResponseKind())
	c.frames = frames
	return nil
}

// AddFrame adds an encoded request whose response is of the given kind.
func (c *Call[T]) AddFrame(frame []byte, kind codec.Kind) {
	c.note(frame, kind)
	c.frames = append(c.frames, frame...)
}

// note records what is known of a request that is about to be added.
func (c *Call[T]) note(frame []byte, kind codec.Kind) {
	op := codec.Op(frame[0])
	c.creates = c.creates || op == codec.OpInsert || op == codec.OpSet
	c.kinds = append(c.kinds, kind)
}

// Creates reports whether a request can create a record.
func (c *Call[T]) Creates() bool { return c.creates }

// SetKey copies key to c.Key.
func (c *Call[T]) SetKey(key string) { c.Key = append(c.Key[:0], key...) }

// Len returns the number of requests.
func (c *Call[T]) Len() int { return len(c.kinds) }

// ReadOnly reports whether no request changes anything, so that sending them twice does no
// harm.
func (c *Call[T]) ReadOnly() bool {
	for _, k := range c.kinds {
		if k == codec.KindStatus {
			return false
		}
	}
	return true
}

// Wait waits for a queued call to be done. If done is true, the call belongs to its caller
// again; err is why it has failed, or nil. If done is false, ctx has ended first, err is
// ctx's error, and the call must not be used any more. In both cases, sent says whether a
// call that has failed or was abandoned may have been executed.
func (c *Call[T]) Wait(ctx context.Context) (done, sent bool, err error) {
	if c.inline {
		c.inline = false
		c.conn.readInline(ctx, c)
	}
	select {
	case <-c.done:
		return true, c.sent, c.err
	case <-ctx.Done():
	}
	if sent, ok := c.abandon(); ok {
		return false, sent, ctx.Err()
	}
	<-c.done
	return true, c.sent, c.err
}

// markLaunched marks a queued call as launched. It returns false if the call has been abandoned.
func (c *Call[T]) markLaunched() bool { return c.phase.CompareAndSwap(phaseUnsent, phaseLaunched) }

// finish returns c to its caller. It returns false if the call has been abandoned.
func (c *Call[T]) finish() bool {
	if c.phase.Swap(phaseDone) == phaseAbandoned {
		return false
	}
	c.done <- struct{}{}
	return true
}

// isDone reports whether c has its responses or has failed.
func (c *Call[T]) isDone() bool { return c.phase.Load() == phaseDone }

// abandon leaves c, which is queued or in flight, to its connection, and returns whether it may have been executed: a
// byte of it may have left. If c is done already, ok is false, and c.done has its element or gets it at once.
func (c *Call[T]) abandon() (sent, ok bool) {
	on, n := c.conn, c.Len() // c may be recycled as soon as it is abandoned
	if c.phase.CompareAndSwap(phaseUnsent, phaseAbandoned) {
		on.freeRoom(n)
		return false, true
	}
	launched := c.phase.CompareAndSwap(phaseLaunched, phaseAbandoned)
	return launched, launched
}

// isAbandoned reports whether the caller of c has returned.
func (c *Call[T]) isAbandoned() bool { return c.phase.Load() == phaseAbandoned }

// callList is a list of calls, oldest first. A call is in one list at most.
type callList[T codec.Value] struct {
	first, last *Call[T]
	n           int
}

// push adds a call as the newest.
func (l *callList[T]) push(cl *Call[T]) { l.append(&callList[T]{cl, cl, 1}) }

// append moves all calls of another list behind those of l.
func (l *callList[T]) append(others *callList[T]) {
	if l.n == 0 {
		l.first = others.first
	} else {
		l.last.next = others.first
	}
	if others.n > 0 {
		l.last = others.last
	}
	l.n += others.n
	*others = callList[T]{}
}

// pop removes and returns the oldest call. The list must not be empty.
func (l *callList[T]) pop() *Call[T] {
	cl := l.first
	l.first, cl.next = cl.next, nil
	l.n--
	return cl
}
