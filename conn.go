package throttr

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// errConnGone is what push returns of a connection that takes no more calls.
var errConnGone = errors.New("throttr: connection is closing")

// conn is one pipelined connection, shared by any number of callers. Responses
// carry no id: they match the requests by order alone, so the order in which
// calls enter flight is the order in which they are written.
//
// Who has the pen moves calls from queue to flight and writes them, as many as there are
// in one write: a caller, or the writer, a goroutine. Who has the ear decodes the answers of
// the calls in flight, oldest first, and frees their places: the reader, another goroutine,
// or a lone caller. Once both goroutines have ended, the writer's fails what is left, each
// call once. A caller who leaves takes nothing away: the answer of an abandoned call is read
// and dropped.
type conn[T codec.Value] struct {
	nc     net.Conn
	cfg    *Config
	counts *counters
	calls  *sync.Pool // of *call[T]
	born   time.Time

	load load

	onEvent func(codec.Event[T]) // what the reader does with EVENTs; nil: it drops them
	direct  *direct              // reads and writes without blocking; nil: it can't
	usage   usage

	mu            sync.Mutex
	wake          sync.Cond      // on mu: the writer waits here
	queue         fifo[*call[T]] // calls to be written
	pen           pen            // who writes
	ear           ear            // who reads
	loans         uint64         // how often a caller has borrowed the ear
	waiting       int            // requests in queue
	frames        uint64         // answers and EVENTs that have come
	sinceFence    int            // requests that entered flight since the last fence
	flight        fifo[*call[T]] // calls written, or being written, and not yet answered
	inFlight      int            // requests in flight
	inFlightBytes int            // bytes of the calls in flight
	retiring      bool           // takes no more calls, and ends with the last one
	together      int            // calls that were last answered together: their callers may be back together
	err           error          // why the connection ended

	// Those of who has the pen.
	buf      []byte // what is written
	accepted int    // how much of it has been
	round    uint64 // how often buf has been filled

	// Those of who has the ear.
	in                   []byte           // what is read into
	lo, hi               int              // where in it are bytes that are yet to be decoded
	finished             []*call[T]       // what the last bytes have brought
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

// newConn serves nc. The bytes in early came after the handshake. When all is
// over, onEnd is called.
func newConn[T codec.Value](nc net.Conn, early []byte, p *pool[T]) *conn[T] {
	return newEventConn(nc, early, p, nil, p.dropped)
}

// newEventConn is newConn with a receiver of EVENTs: the reader calls it for each, in
// order, and before the callers have the answers that came with them. The EVENT is
// valid until it returns.
func newEventConn[T codec.Value](nc net.Conn, early []byte, p *pool[T], onEvent func(codec.Event[T]), onEnd func(*conn[T])) *conn[T] {
	c := &conn[T]{
		onEvent: onEvent,
		nc:      nc, cfg: p.cfg, counts: &p.counts, calls: p.calls, born: time.Now(),
		recall: make(chan struct{}, 1), readDone: make(chan struct{}), done: make(chan struct{}),
	}
	c.direct = newDirect(nc)
	c.usage.since = c.born
	c.wake.L = &c.mu
	c.stall.timeout, c.stall.look = p.cfg.StallTimeout, c.checkStall
	go c.read(early)
	go c.write(onEnd)
	return c
}

// push queues a call. It returns ErrOverloaded, or errConnGone; then the call is
// still its caller's. A caller who is about to do nothing but to wait can borrow the ear: if
// push returns true, he must hear.
func (c *conn[T]) push(cl *call[T], waits bool) (borrowed bool, err error) {
	n := len(cl.kinds)
	c.mu.Lock()
	if c.err != nil || c.retiring {
		c.mu.Unlock()
		return false, errConnGone
	}
	if c.waiting+n > c.cfg.MaxWaiting && c.waiting > 0 {
		c.mu.Unlock()
		return false, ErrOverloaded
	}
	others := c.inFlight > 0 || c.queue.len() > 0 || c.together > 1
	c.queue.push(cl)
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
		c.fail(err)
	case mine && others:
		runtime.Gosched() // who is about to push can be in the same write
	}
	if mine {
		c.writeDirect()
	}
	return borrowed, nil
}

// recycle puts away a call that its caller has abandoned.
func (c *conn[T]) recycle(cl *call[T]) {
	c.load.remove(len(cl.kinds), 1)
	c.calls.Put(cl)
}

// finish hands calls that have left flight or the queue back to their callers, or recycles
// them.
func (c *conn[T]) finish(calls ...*call[T]) {
	requests, answers := 0, 0
	for _, cl := range calls {
		requests += len(cl.kinds)
		answers += len(cl.answers)
	}
	c.load.remove(requests, len(calls))
	c.counts.answered.Add(uint64(answers))
	for _, cl := range calls {
		if !cl.finish() {
			c.calls.Put(cl)
		}
	}
	clear(calls)
}

// fail ends the connection, for the first reason that it is called with.
func (c *conn[T]) fail(err error) {
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
func (c *conn[T]) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall.stop()
	for c.flight.len() > 0 {
		cl := c.flight.pop()
		cl.err = c.err
		cl.sent = cl.round != c.round || cl.offset < c.accepted
		c.finish(cl)
	}
	for c.queue.len() > 0 {
		cl := c.queue.pop()
		cl.err = c.err
		c.finish(cl)
	}
	c.inFlight, c.waiting = 0, 0
}

// retire lets no more calls in, and ends the connection when it has none left.
func (c *conn[T]) retire() {
	c.mu.Lock()
	c.retiring = true
	c.mu.Unlock()
	c.wake.Signal()
}

// failure returns why the connection ends, nil if it does not.
func (c *conn[T]) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the connection at once and waits until nothing of it is left.
func (c *conn[T]) close(reason error) {
	c.fail(reason)
	<-c.done
}
