package conn

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
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
// done when each of them has its response. A call comes from [Calls]. It belongs to
// its caller until Enqueue, and again when Wait returns that it is done.
type Call struct {
	Key       []byte     // scratch space for a key on its way into a frame
	Responses []Response // once done without an error: one for each request
	// MostTTL is the largest amount of a TTL that a QUERY of the call can return. A response with a
	// larger one belongs to another request. The unit tells nothing: a server reads it from a record
	// that may be gone by then (H19). 0 means that none is known.
	MostTTL uint64
	// SingleRead says that the call must fit one read of the server, of up to 8096 bytes, together with all that is in
	// flight. A server executes what one read returns without requests of other connections in between. In rare cases
	// it reads the packets of a write one by one, so that an interruption must do no harm.
	SingleRead bool
	// Decode, if not nil, decodes the response to the only request of the call, which can be of any length, part by part.
	// It returns how many bytes of src it has used, and whether the response ends there. The others come again, at the
	// start of the next src. [codec.ErrShort] asks for more bytes; any other error ends the connection. It runs in the
	// goroutine that reads, though the call may be abandoned, and may take its time: no stall is noticed meanwhile.
	Decode  func(src []byte) (n int, done bool, err error)
	Parks   bool // the last request keeps the server parked; the pool appends it and drops its response
	Unasked bool // made by the client itself: it does not count as a use of the connection

	// Stale reports whether it is too late to send the call, which then fails with
	// ErrStale. It runs just before the call is written, must be quick, and must not use
	// the connection. Nil means that it is never too late.
	Stale func() bool

	size    Size
	frames  []byte       // the encoded requests
	kinds   []codec.Kind // the kinds of their responses
	creates bool         // there is an INSERT or SET
	invalid error        // why a request could not be encoded; then the call can't be sent

	phase atomic.Uint32
	done  chan struct{} // gets one element when phase becomes phaseDone
	err   error         // once done: why there are no responses
	sent  bool          // once done: whether a failed call may have been executed

	conn   *Conn  // where it was queued last
	inline bool   // Wait reads the responses itself
	offset uint64 // where in the connection's stream of requests the call begins
	before uint64 // frames that the connection had received when the call was written
	next   *Call  // in a callList
}

// Calls recycles the calls to servers of one value size.
type Calls struct {
	known atomic.Pointer[knownSize]
	pool  sync.Pool
}

// knownSize is a value size, nil if it is not known, and the server that has told it, if one has.
type knownSize struct {
	size   Size
	server string
}

// NewCalls returns the Calls of a value size. If it is nil, the first server tells it.
func NewCalls(s Size) *Calls {
	p := &Calls{}
	p.known.Store(&knownSize{size: s})
	return p
}

// Size returns the value size, or nil if it is not known yet. It is known before a connection is ready.
func (p *Calls) Size() Size { return p.known.Load().size }

// Learn makes s, which a server has told, the value size if it is not known yet. It returns the value size, and the
// server that has told that; "" if NewCalls was given it.
func (p *Calls) Learn(s Size, server string) (size Size, teller string) {
	k := p.known.Load()
	if k.size == nil {
		p.known.CompareAndSwap(k, &knownSize{s, server})
		k = p.known.Load() // another connection may have been quicker
	}
	return k.size, k.server
}

// Get returns an empty call.
func (p *Calls) Get() *Call {
	c, ok := p.pool.Get().(*Call)
	if !ok {
		c = &Call{done: make(chan struct{}, 1)}
	}
	c.size = p.Size()
	return c
}

// Put recycles a call. Neither the call nor its Responses may be used any more.
func (p *Calls) Put(c *Call) {
	const keep = 4 << 10 // larger buffers, of large batches, are not kept
	if cap(c.frames) > keep || cap(c.Responses) > keep/64 {
		c.frames = nil
		c.Responses = nil
		c.kinds = nil
	}
	clear(c.Responses)
	*c = Call{Key: c.Key, Responses: c.Responses[:0], frames: c.frames[:0], kinds: c.kinds[:0], done: c.done}
	p.pool.Put(c)
}

// Rewind prepares a call that is done for being sent once more.
func (c *Call) Rewind() {
	clear(c.Responses)
	c.Responses = c.Responses[:0]
	c.err, c.sent = nil, false
	c.phase.Store(phaseUnsent)
}

// Add encodes a request. After an error the call can't be sent. The type of the request is a
// type parameter, so that the request does not escape to the heap.
func Add[R codec.Request](c *Call, r R) error {
	frames, err := r.AppendBinary(c.frames)
	return c.add(frames, r.ResponseKind(), err)
}

// Insert encodes an INSERT, as Add does.
func (c *Call) Insert(m Insert) error {
	frames, err := c.size.AppendInsert(c.frames, m)
	return c.add(frames, codec.KindStatus, err)
}

// Update encodes an UPDATE, as Add does.
func (c *Call) Update(m Update) error {
	frames, err := c.size.AppendUpdate(c.frames, m)
	return c.add(frames, codec.KindStatus, err)
}

// AddFrame adds an encoded request whose response is of the given kind.
func (c *Call) AddFrame(frame []byte, kind codec.Kind) {
	c.add(append(c.frames, frame...), kind, nil)
}

// add adds a request, given the frames with it, or fails the call.
func (c *Call) add(frames []byte, kind codec.Kind, err error) error {
	if err != nil {
		c.invalid = err
		return err
	}
	op := codec.Op(frames[len(c.frames)])
	c.creates = c.creates || op == codec.OpInsert || op == codec.OpSet
	c.frames = frames
	c.kinds = append(c.kinds, kind)
	return nil
}

// Creates reports whether a request can create a record.
func (c *Call) Creates() bool { return c.creates }

// SetKey copies key to c.Key.
func (c *Call) SetKey(key string) { c.Key = append(c.Key[:0], key...) }

// Len returns the number of requests.
func (c *Call) Len() int { return len(c.kinds) }

// ReadOnly reports whether no request changes anything, so that sending them twice does no
// harm. A server answers each request that changes something by a status, and no other one.
func (c *Call) ReadOnly() bool { return !slices.Contains(c.kinds, codec.KindStatus) }

// Wait waits for a queued call to be done. If done is true, the call belongs to its caller
// again; err is why it has failed, or nil. If done is false, ctx has ended first, err is
// ctx's error, and the call must not be used any more. In both cases, sent says whether a
// call that has failed or was abandoned may have been executed.
func (c *Call) Wait(ctx context.Context) (done, sent bool, err error) {
	if c.inline {
		c.inline = false
		c.conn.readInline(ctx, c)
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

// markLaunched marks a queued call as launched. It returns false if the call has been abandoned.
func (c *Call) markLaunched() bool { return c.phase.CompareAndSwap(phaseUnsent, phaseLaunched) }

// finish returns c to its caller. It returns false if the call has been abandoned.
func (c *Call) finish() bool {
	if c.phase.Swap(phaseDone) == phaseAbandoned {
		return false
	}
	c.done <- struct{}{}
	return true
}

// isDone reports whether c has its responses or has failed.
func (c *Call) isDone() bool { return c.phase.Load() == phaseDone }

// abandon leaves c, which is queued or in flight, to its connection, and returns whether it may have been executed: a
// byte of it may have left. If c is done already, ok is false, and c.done has its element or gets it at once.
func (c *Call) abandon() (sent, ok bool) {
	if c.phase.CompareAndSwap(phaseUnsent, phaseAbandoned) {
		return false, true
	}
	launched := c.phase.CompareAndSwap(phaseLaunched, phaseAbandoned)
	return launched, launched
}

// isAbandoned reports whether the caller of c has returned.
func (c *Call) isAbandoned() bool { return c.phase.Load() == phaseAbandoned }

// callList is a list of calls, oldest first. A call is in one list at most.
type callList struct {
	first, last *Call
	n           int
}

// push adds a call as the newest.
func (l *callList) push(cl *Call) { l.append(&callList{cl, cl, 1}) }

// append moves all calls of another list behind those of l.
func (l *callList) append(others *callList) {
	if l.n == 0 {
		l.first = others.first
	} else {
		l.last.next = others.first
	}
	if others.n > 0 {
		l.last = others.last
	}
	l.n += others.n
	*others = callList{}
}

// pop removes and returns the oldest call. The list must not be empty.
func (l *callList) pop() *Call {
	cl := l.first
	l.first, cl.next = cl.next, nil
	l.n--
	return cl
}
