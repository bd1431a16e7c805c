// Package conn has one pipelined connection to a server.
package conn

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fifo"
)

// Conn is one pipelined connection, shared by any number of callers. Responses
// carry no id: they match the requests by order alone, so the order in which
// calls enter flight is the order in which they are written.
//
// Who has the pen moves calls from queue to flight and writes them, as many as there are
// in one write: a caller, or the writer, a goroutine. Who has the ear decodes the answers of
// the calls in flight, oldest first, and frees their places: the reader, another goroutine,
// or a lone caller. Once both goroutines have ended, the writer's fails what is left, each
// call once. A caller who leaves takes nothing away: the answer of an abandoned call is read
// and dropped.
type Conn[T codec.Value] struct {
	nc   net.Conn
	o    Options[T]
	born time.Time

	load loadCounter

	direct *direct // reads and writes without blocking; nil: it can't
	usage  usage

	mu            sync.Mutex
	wake          sync.Cond            // on mu: the writer waits here
	queue         fifo.Queue[*Call[T]] // calls to be written
	pen           pen                  // who writes
	ear           ear                  // who reads
	loans         uint64               // how often a caller has borrowed the ear
	waiting       int                  // requests in queue
	frames        uint64               // answers and EVENTs that have come
	sinceFence    int                  // requests that entered flight since the last fence
	flight        fifo.Queue[*Call[T]] // calls written, or being written, and not yet answered
	inFlight      int                  // requests in flight
	inFlightBytes int                  // bytes of the calls in flight
	retiring      bool                 // takes no more calls, and ends with the last one
	together      int                  // calls that were last answered together: their callers may be back together
	err           error                // why the connection ended

	// Those of who has the pen.
	buf      []byte // what is written
	accepted int    // how much of it has been
	round    uint64 // how often buf has been filled

	// Those of who has the ear.
	in                   []byte           // what is read into
	lo, hi               int              // where in it are bytes that are yet to be decoded
	finished             []*Call[T]       // what the last bytes have brought
	events               []codec.Event[T] // likewise
	id                   codec.ConnID     // what the server calls the connection
	identified           bool             // id is known
	pricked              time.Time        // when a borrower last looked whether the connection is closed
	watched, lastWatched <-chan struct{}  // of whose ctx the end is waited for; of who was last to hear
	stopWatch            func() bool

	recall   chan struct{} // one element: the reader is to look who has the ear
	readDone chan struct{} // closed when the reader has ended
	done     chan struct{} // closed when all is over
	stall    watchdog
}

// Counters count what connections receive.
type Counters struct{ Answered, Events atomic.Uint64 }

// Options are the settings of a connection. All but OnEvent and OnEnd must be set.
type Options[T codec.Value] struct {
	MaxInFlight  int // requests in flight, at most
	MaxQueued    int // requests that wait to be written, at most
	CanaryEvery  int // requests between two canary requests; 0 means no canary requests
	StallTimeout time.Duration
	Calls        *CallPool[T]
	Counters     *Counters
	// OnEvent is called for each EVENT, in order, before callers have the responses that
	// came with it. The EVENT is valid until it returns. If OnEvent is nil, EVENTs are
	// dropped.
	OnEvent func(codec.Event[T])
	// OnEnd is called once, when all is over.
	OnEnd func(c *Conn[T], err error)
}

// New serves nc. The bytes in early came after the handshake.
func New[T codec.Value](nc net.Conn, early []byte, o Options[T]) *Conn[T] {
	c := &Conn[T]{
		nc: nc, o: o, born: time.Now(),
		recall: make(chan struct{}, 1), readDone: make(chan struct{}), done: make(chan struct{}),
	}
	c.direct = newDirect(nc)
	c.usage.since = c.born
	c.wake.L = &c.mu
	c.stall.timeout, c.stall.look = o.StallTimeout, c.checkStall
	go c.read(early)
	go c.write()
	return c
}

// Enqueue queues a call. On ErrQueueFull or ErrGone the call is still its caller's. Waits
// says that the caller does nothing but Wait next.
func (c *Conn[T]) Enqueue(cl *Call[T], waits bool) error {
	borrowed, err := c.push(cl, waits)
	if borrowed {
		cl.borrowed = c
	}
	return err
}

// Done returns a channel that is closed when all is over.
func (c *Conn[T]) Done() <-chan struct{} { return c.done }

// Load returns what the connection has to do.
func (c *Conn[T]) Load() Load { return c.load.get() }

// Created returns when the connection was made.
func (c *Conn[T]) Created() time.Time { return c.born }

// Usage returns how many requests are in flight and queued.
func (c *Conn[T]) Usage() (inFlight, queued int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight, c.waiting
}

// InlineReads returns how many callers have read their own responses.
func (c *Conn[T]) InlineReads() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loans
}

// usage tells for how long nobody has needed a connection. The mutex of its connection
// guards it.
type usage struct {
	pushes uint64    // calls queued
	seen   uint64    // pushes at the last look
	since  time.Time // of the last look that saw a new one
}

// Idle returns for how long nobody has needed the connection.
func (c *Conn[T]) Idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := &c.usage; u.pushes != u.seen {
		u.seen, u.since = u.pushes, time.Now()
	}
	return time.Since(c.usage.since)
}

// pingKey is the key that Ping asks for. Nobody has it.
const pingKey = "throttr:ping"

// Ping sends a QUERY and waits until it is answered, or the connection has ended.
func (c *Conn[T]) Ping() {
	cl := c.o.Calls.Get()
	Add(cl, codec.Query{Key: []byte(pingKey)})
	if c.Enqueue(cl, false) == nil {
		<-cl.done
		c.mu.Lock()
		c.usage.seen++ // a ping is no use
		c.mu.Unlock()
	}
	c.o.Calls.Put(cl)
}

// push queues a call. It returns ErrQueueFull, or ErrGone; then the call is
// still its caller's. A caller who is about to do nothing but to wait can borrow the ear: if
// push returns true, he must hear.
func (c *Conn[T]) push(cl *Call[T], waits bool) (borrowed bool, err error) {
	n := len(cl.kinds)
	c.mu.Lock()
	if c.err != nil || c.retiring {
		c.mu.Unlock()
		return false, ErrGone
	}
	if c.waiting+n > c.o.MaxQueued && c.waiting > 0 {
		c.mu.Unlock()
		return false, ErrQueueFull
	}
	others := c.inFlight > 0 || c.queue.Len() > 0 || c.together > 1
	c.queue.Push(cl)
	c.waiting += n
	c.usage.pushes++
	c.load.add(n, 1)
	mine := c.takePen()
	borrowed = c.borrow(waits, mine && !others)
	c.mu.Unlock()
	if borrowed {
		err = c.prick()
	}
	switch {
	case err != nil:
		c.Fail(err)
	case mine && others:
		runtime.Gosched() // who is about to push can be in the same write
	}
	if mine {
		c.writeDirect()
	}
	return borrowed, nil
}

// recycle puts away a call that its caller has abandoned.
func (c *Conn[T]) recycle(cl *Call[T]) {
	c.load.remove(len(cl.kinds), 1)
	c.o.Calls.Put(cl)
}

// finish hands calls that have left flight or the queue back to their callers, or recycles
// them.
func (c *Conn[T]) finish(calls ...*Call[T]) {
	requests, answers := 0, 0
	for _, cl := range calls {
		requests += len(cl.kinds)
		answers += len(cl.Replies)
	}
	c.load.remove(requests, len(calls))
	c.o.Counters.Answered.Add(uint64(answers))
	for _, cl := range calls {
		if !cl.finish() {
			c.o.Calls.Put(cl)
		}
	}
	clear(calls)
}

// Fail ends the connection, for the first reason that it is called with.
func (c *Conn[T]) Fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.wake.Signal()
	c.callReader()
	c.nc.Close()
}

// settle fails all calls that are left, once both loops have ended. A call was
// sent if a write has accepted a byte of it.
func (c *Conn[T]) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall.stop()
	for c.flight.Len() > 0 {
		cl := c.flight.Pop()
		cl.err = c.err
		cl.sent = cl.round != c.round || cl.offset < c.accepted
		c.finish(cl)
	}
	for c.queue.Len() > 0 {
		cl := c.queue.Pop()
		cl.err = c.err
		c.finish(cl)
	}
	c.inFlight, c.waiting = 0, 0
}

// Retire lets no more calls in, and ends the connection when it has none left.
func (c *Conn[T]) Retire() {
	c.mu.Lock()
	c.retiring = true
	c.mu.Unlock()
	c.wake.Signal()
}

// Err returns why the connection ends, nil if it does not.
func (c *Conn[T]) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection at once and waits until nothing of it is left.
func (c *Conn[T]) Close(reason error) {
	c.Fail(reason)
	<-c.done
}
