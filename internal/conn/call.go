package conn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
)

// MaxOutstanding is the number of responses that a server keeps for a connection. It
// drops further ones silently (H4). EVENTs count.
const MaxOutstanding = 1024

// Reply is a decoded response of any kind.
type Reply[T codec.Value] struct {
	OK    bool // success, or found
	Quota T
	TTL   codec.TTL[T]
	Value []byte // of a GET, a copy of the value; of a rarer request, a copy of the response
}

// TTLBound is what is known about the TTL of records. A response to a QUERY that
// contradicts it belongs to another request. The zero value excludes nothing.
type TTLBound struct {
	Known bool
	Unit  codec.Unit
	Most  uint64 // the largest possible TTL, in Units
}

// excludes reports whether no record can have this TTL.
func (b TTLBound) excludes(unit codec.Unit, amount uint64) bool {
	return b.Known && (unit != b.Unit || amount > b.Most)
}

// callState is where a call is, and who may touch it.
type callState = uint32

const (
	callQueued    callState = iota // waits to be sent; no byte of it has left
	callSent                       // a Write has been given it, or is about to be
	callDone                       // answered or failed: it is its caller's again
	callAbandoned                  // its caller has left: it is the connection's to recycle
)

// Atomicity is what a call demands of the way in which its requests reach the server. A
// server executes what it has read at once, up to 8096 bytes, without requests of other
// connections in between.
type Atomicity uint8

const (
	// Interruptible calls demand nothing.
	Interruptible Atomicity = iota
	// SingleRead calls fit one read of the server together with all that is in flight. A
	// cut between two packets is possible, if rare, and must do no harm.
	SingleRead
	// Exclusive calls are executed without interruption. They wait until nothing is in
	// flight, so that the server has nothing left to read, and begin a write that fits one
	// packet.
	Exclusive
)

// Call is one or more requests that travel together: one write sends them, and the call is
// done when all of them have a response. A call belongs to its caller until it is queued,
// and again when Wait has returned that it is owned.
type Call[T codec.Value] struct {
	Op        codec.Op // of a single request; 0 for a batch
	Atomicity Atomicity
	Bound     TTLBound    // what responses to QUERYs must match
	Stale     func() bool // reports whether it is too late to send the call; nil means never
	Key       []byte      // scratch space for a key on its way into a frame
	Replies   []Reply[T]  // once done, one for each request

	frames []byte       // the encoded requests
	kinds  []codec.Kind // of their responses

	state atomic.Uint32 // a callState
	done  chan struct{} // one element, when state becomes callDone; lives as long as the call
	err   error         // once done: why there is no response
	sent  bool          // once done: whether a failed call may have been executed

	fence bool // nobody waits for it, see fenceDue

	borrowed *Conn[T] // the connection that Wait reads for itself

	round  uint64 // the writer's: in which write it left
	offset int    // the writer's: at which byte of that write it began
	before uint64 // the writer's: how many responses and EVENTs had come by then
}

// CallPool recycles calls. The zero value is ready to use.
type CallPool[T codec.Value] struct{ pool sync.Pool }

// Get returns an empty call.
func (p *CallPool[T]) Get() *Call[T] {
	c, ok := p.pool.Get().(*Call[T])
	if !ok {
		return &Call[T]{done: make(chan struct{}, 1)}
	}
	c.reset()
	return c
}

// Put recycles a call that its caller owns. Neither the call nor its Replies may be used
// any more.
func (p *CallPool[T]) Put(c *Call[T]) { p.pool.Put(c) }

// reset empties c for other requests.
func (c *Call[T]) reset() {
	const keep = 4 << 10 // bytes and answers; what a large batch has grown is let go
	if cap(c.frames) > keep || cap(c.Replies) > keep/64 {
		c.frames, c.Replies, c.kinds = nil, nil, nil
	}
	c.Op, c.Atomicity, c.fence, c.Bound = 0, Interruptible, false, TTLBound{}
	c.Stale = nil
	c.frames, c.kinds = c.frames[:0], c.kinds[:0]
	c.Rewind()
}

// Rewind makes c ready to be sent, once more if need be.
func (c *Call[T]) Rewind() {
	clear(c.Replies)
	c.Replies = c.Replies[:0]
	c.err, c.sent = nil, false
	c.state.Store(callQueued)
}

// Add encodes a request. On an error the call is unchanged. The type of the request is a
// type parameter, so that the request does not escape to the heap.
func Add[T codec.Value, R codec.Request](c *Call[T], r R) error {
	frames, err := r.AppendBinary(c.frames)
	if err != nil {
		return err
	}
	c.frames = frames
	c.kinds = append(c.kinds, r.ResponseKind())
	return nil
}

// AddFrame adds an encoded request whose response is of the given kind.
func (c *Call[T]) AddFrame(frame []byte, kind codec.Kind) {
	c.frames = append(c.frames, frame...)
	c.kinds = append(c.kinds, kind)
}

// SetKey copies key to c.Key.
func (c *Call[T]) SetKey(key string) { c.Key = append(c.Key[:0], key...) }

// Len returns the number of requests.
func (c *Call[T]) Len() int { return len(c.kinds) }

// ReadOnly reports whether all requests only read, so that sending them twice does no
// harm.
func (c *Call[T]) ReadOnly() bool {
	for _, k := range c.kinds {
		if k == codec.KindStatus {
			return false
		}
	}
	return true
}

// Wait waits for a call that has been queued. If owned is true, the call is done and its
// caller's again: err says why it has no replies, if it has none, and sent whether it may
// have been executed all the same. If owned is false, ctx ended first: err is ctx's, and
// the call must not be touched any more.
func (c *Call[T]) Wait(ctx context.Context) (owned, sent bool, err error) {
	if nc := c.borrowed; nc != nil {
		c.borrowed = nil
		nc.hear(ctx, c)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if sent, ok := c.abandon(); ok {
			return false, sent, ctx.Err()
		}
		<-c.done
	}
	return true, c.sent, c.err
}

// Outcome returns what Wait has returned of a call that is done.
func (c *Call[T]) Outcome() (sent bool, err error) { return c.sent, c.err }

// claim moves a queued call on to callSent, unless it was abandoned.
func (c *Call[T]) claim() bool { return c.state.CompareAndSwap(callQueued, callSent) }

// finish hands c back to its caller, and returns false where there is none any
// more.
func (c *Call[T]) finish() bool {
	for {
		s := c.state.Load()
		if s == callAbandoned {
			return false
		}
		if c.state.CompareAndSwap(s, callDone) {
			c.done <- struct{}{}
			return true
		}
	}
}

// abandon leaves c to its connection. It returns whether a byte of it may have
// left, and false where c is done already: then c.done has, or is about to get, its
// element.
func (c *Call[T]) abandon() (sent, ok bool) {
	for {
		s := c.state.Load()
		if s == callDone {
			return false, false
		}
		if c.state.CompareAndSwap(s, callAbandoned) {
			return s == callSent, true
		}
	}
}

// decodeAnswer decodes a response of the given kind from the start of src.
func decodeAnswer[T codec.Value](kind codec.Kind, src []byte) (a Reply[T], n int, err error) {
	switch kind {
	case codec.KindStatus:
		s, n, err := codec.DecodeStatus(src)
		return Reply[T]{OK: bool(s)}, n, err
	case codec.KindQuery:
		q, n, err := codec.DecodeQueryResponse[T](src)
		return Reply[T]{OK: q.Found, Quota: q.Quota, TTL: q.TTL}, n, err
	case codec.KindGet:
		g, n, err := codec.DecodeGetResponse[T](src)
		a := Reply[T]{OK: g.Found, TTL: g.TTL}
		if err == nil && g.Found {
			a.Value = append([]byte{}, g.Value...)
		}
		return a, n, err
	default: // who has asked decodes it once more
		_, n, err := codec.DecodeResponse[T](kind, src)
		if err == nil {
			a.Value = append([]byte{}, src[:n]...)
		}
		return a, n, err
	}
}
