package throttr

import (
	"errors"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
)

// answer is a decoded response, of whatever kind.
type answer[T codec.Value] struct {
	ok    bool // success, or found
	quota T
	ttl   codec.TTL[T]
	value []byte // of a GET, a copy; of a rarer request, the response itself
}

// ttlBound is what is known of records beforehand. A QUERY that says otherwise is not the
// answer to this call. The zero value excludes nothing.
type ttlBound struct {
	known bool
	unit  codec.Unit
	most  uint64 // of the TTL, in units
}

// excludes reports whether no record can be so.
func (b ttlBound) excludes(unit codec.Unit, amount uint64) bool {
	return b.known && (unit != b.unit || amount > b.most)
}

// callState is where a call is, and who may touch it.
type callState = uint32

const (
	callQueued    callState = iota // waits to be sent; no byte of it has left
	callSent                       // a Write has been given it, or is about to be
	callDone                       // answered or failed: it is its caller's again
	callAbandoned                  // its caller has left: it is the connection's to recycle
)

// unity is what a call demands of the way its requests reach the server, which
// executes uninterrupted what it has read at once, up to 8096 bytes.
type unity uint8

const (
	// loose: other connections' requests may be executed in between.
	loose unity = iota
	// whole: the server's reads are not to cut it. All that is in flight fits one.
	// A cut between two packets is possible, if rare, and must do no harm.
	whole
	// alone: nothing is to cut it. It waits until nothing is in flight, when the
	// server has nothing left to read, and begins a write that fits one packet.
	alone
)

// errStale is why a call was not sent that has waited for too long.
var errStale = errors.New("throttr: the request waited to be sent for too long")

// call is one or more requests that travel together: they are sent in one write,
// and answered together. It belongs to its caller until it is queued, and again
// once it is done. A caller who can't wait abandons it.
type call[T codec.Value] struct {
	op      codec.Op     // of a single request, for errors; 0 for a batch
	unity   unity        // what must not come between its requests
	frames  []byte       // the encoded requests
	kinds   []codec.Kind // of their responses
	answers []answer[T]  // as they come; as long as kinds in the end

	state atomic.Uint32 // a callState
	done  chan struct{} // one element, when state becomes callDone; lives as long as the call
	err   error         // once done: why there is no answer
	sent  bool          // once done: whether a failed call may have been executed

	fence  bool     // it is a fence, see fenceDue
	record ttlBound // what a QUERY can tell of the records it asks for

	stale func() bool // whether its requests make no sense any more; nil: they always do

	borrowed *conn[T] // the caller's: whose ear he has, nil if he has none

	round  uint64 // the writer's: in which write it left
	offset int    // the writer's: at which byte of that write it began
	before uint64 // the writer's: how many answers and EVENTs had come by then

	scratch []byte // for a key on its way into a frame
}

func newCall[T codec.Value]() *call[T] {
	return &call[T]{done: make(chan struct{}, 1)}
}

// reset empties c for other requests.
func (c *call[T]) reset() {
	const keep = 4 << 10 // bytes and answers; what a large batch has grown is let go
	if cap(c.frames) > keep || cap(c.answers) > keep/64 {
		c.frames, c.answers, c.kinds = nil, nil, nil
	}
	c.op, c.unity, c.fence, c.record = 0, loose, false, ttlBound{}
	c.stale = nil
	c.frames, c.kinds = c.frames[:0], c.kinds[:0]
	c.rewind()
}

// rewind makes c ready to be sent, once more if need be.
func (c *call[T]) rewind() {
	clear(c.answers)
	c.answers = c.answers[:0]
	c.err, c.sent = nil, false
	c.state.Store(callQueued)
}

// add encodes a request. On an error nothing has been added.
func (c *call[T]) add(r codec.Request) error { return add(c, r) }

// add is c.add for a request whose type is known: then it need not escape, and nothing
// is allocated.
func add[T codec.Value, R codec.Request](c *call[T], r R) error {
	frames, err := r.AppendBinary(c.frames)
	if err != nil {
		return err
	}
	c.frames = frames
	c.kinds = append(c.kinds, r.ResponseKind())
	return nil
}

// readOnly reports whether all requests only read, so that sending them twice does
// no harm.
func (c *call[T]) readOnly() bool {
	for _, k := range c.kinds {
		if k == codec.KindStatus {
			return false
		}
	}
	return true
}

// claim moves a queued call on to callSent, unless it was abandoned.
func (c *call[T]) claim() bool { return c.state.CompareAndSwap(callQueued, callSent) }

// finish hands c back to its caller, and returns false where there is none any
// more.
func (c *call[T]) finish() bool {
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
func (c *call[T]) abandon() (sent, ok bool) {
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
func decodeAnswer[T codec.Value](kind codec.Kind, src []byte) (a answer[T], n int, err error) {
	switch kind {
	case codec.KindStatus:
		s, n, err := codec.DecodeStatus(src)
		return answer[T]{ok: bool(s)}, n, err
	case codec.KindQuery:
		q, n, err := codec.DecodeQueryResponse[T](src)
		return answer[T]{ok: q.Found, quota: q.Quota, ttl: q.TTL}, n, err
	case codec.KindGet:
		g, n, err := codec.DecodeGetResponse[T](src)
		a := answer[T]{ok: g.Found, ttl: g.TTL}
		if err == nil && g.Found {
			a.value = append([]byte{}, g.Value...)
		}
		return a, n, err
	default: // who has asked decodes it once more
		_, n, err := codec.DecodeResponse[T](kind, src)
		if err == nil {
			a.value = append([]byte{}, src[:n]...)
		}
		return a, n, err
	}
}
