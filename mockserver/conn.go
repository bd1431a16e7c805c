package mockserver

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	// maxOutstanding is how many responses a real server keeps for a connection. It
	// silently drops any more (H4).
	maxOutstanding = 1024
	// readSize is how many bytes are read from a connection before responses are sent. It
	// is more than a real server's buffer, so that a flood counts as one: all of its
	// responses are outstanding, however fast they could be sent.
	readSize = 64 << 10
)

// conn is a connection. Its reader goroutine executes requests, and sends the responses
// that are due; its writer goroutine sends the others.
type conn struct {
	srv    *Server
	number int // in the order of acceptance, from 1
	id     codec.ConnID
	net    net.Conn
	// buffered reports whether the connection accepts a write before the client reads it.
	buffered bool
	out      outbox
	once     sync.Once // closes
	closed   chan struct{}

	// Used only by the reader.
	in       []byte // received and not executed yet, at most codec.MaxFrame bytes
	x        exchange
	readLeft int // how many bytes pass before the cut; -1: there is none

	sending   sync.Mutex // guards sent and writeLeft; held while responses are sent
	sent      responses  // those that are being sent
	writeLeft int        // how many bytes pass before the cut; -1: there is none

	turn   atomic.Int64 // responses that were sent since the last read
	failed atomic.Int64 // responses that could not be sent

	// Guarded by Server.mu.
	reads                 int    // that have brought requests during the start-up
	halfOpen              bool   // what the client sends is lost, and nothing is sent
	dropped               bool   // the server has ended the connection
	gone                  bool   // no more requests are executed
	since                 uint64 // ns since 1970
	subscribed            int    // how many subscriptions it has
	requests              [lastOp + 1]uint64
	readBytes, writeBytes uint64
	published, received   uint64 // bytes of payloads: published to itself; published by others
}

// newConn is called with Server.mu held.
func newConn(s *Server, nc net.Conn, buffered bool, number int) *conn {
	c := &conn{
		srv: s, number: number, id: newID(), net: nc, buffered: buffered, closed: make(chan struct{}), readLeft: -1,
		writeLeft: -1,
		since:     s.clock.now(),
	}
	c.out.wake = make(chan struct{}, 1)
	s.cut(c)
	if s.hazards[Events] {
		s.channels.subscribe(c, everyConn, c.since)
		s.channels.subscribe(c, c.id.String(), c.since)
	}
	return c
}

// drop ends the connection at once. The caller holds Server.mu.
func (c *conn) drop() {
	c.dropped = true
	c.leave()
	c.close()
}

// leave ends the execution of requests and the subscriptions. The caller holds Server.mu.
func (c *conn) leave() {
	if !c.gone {
		c.gone = true
		c.srv.channels.leave(c)
	}
}

func (c *conn) close() {
	c.once.Do(func() {
		close(c.closed)
		c.net.Close()
	})
}

// read is the reader goroutine.
func (c *conn) read() {
	defer c.srv.wg.Done()
	// The writer sends the responses so far, and closes the connection.
	defer c.out.finish()
	buf := make([]byte, c.srv.thread.readSize(readSize))
	for {
		n, err := c.net.Read(buf)
		data := buf[:n]
		if n > 0 {
			c.turn.Store(0)
		}
		cut := c.readLeft >= 0 && n > c.readLeft
		if cut {
			data = buf[:c.readLeft]
		}
		if c.readLeft >= 0 {
			c.readLeft -= len(data)
		}
		if !c.serve(data) || cut || err != nil {
			c.ended(err)
			return
		}
		c.srv.thread.wait()
	}
}

// serve executes the requests in data and sends the responses. If the connection is
// buffered, the reader sends them itself, all together, which saves waking the writer.
// It reports whether the connection goes on.
func (c *conn) serve(data []byte) bool {
	if t := c.srv.thread; t.sleeps() {
		t.acquire()
		c.out.hold(true)
		ok := c.feed(data)
		t.release()
		c.out.hold(false)
		c.out.signal()
		return ok
	}
	if !c.buffered {
		ok := c.feed(data)
		c.out.signal()
		return ok
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if !c.feed(data) {
		return false
	}
	wait, _, ok := c.flush()
	if wait > 0 {
		c.out.signal()
	}
	return ok
}

// feed executes the requests in data in portions that fit a real server's buffer. It
// reports whether the connection goes on.
func (c *conn) feed(data []byte) bool {
	for len(data) > 0 {
		n := min(len(data), codec.MaxFrame-len(c.in))
		c.in = append(c.in, data[:n]...)
		data = data[n:]
		if !c.srv.execute(c, n) {
			return false
		}
	}
	return true
}

// execute executes the complete requests in c.in, without requests of other connections
// in between. The last n bytes were received just now. It reports whether the connection
// goes on.
func (s *Server) execute(c *conn, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.halfOpen {
		c.in = c.in[:0]
		return !c.gone
	}
	c.readBytes += uint64(n)
	began := time.Now()
	s.thread.owe(s.costs.turn)
	now := s.clock.now()
	s.scan(now)
	rest := c.in
	requests := 0
	for len(rest) > 0 && !c.gone {
		n, err := s.step(c, rest, now)
		if errors.Is(err, codec.ErrShort) {
			if len(rest) < codec.MaxFrame {
				break
			}
			err = breachf("H5", "%d bytes are the beginning of a frame that never fits", len(rest))
		}
		if err != nil {
			s.violate(c, err)
			break
		}
		rest = rest[n:]
		requests++
	}
	if s.hazards[Reorder] {
		c.out.reverse(requests)
	}
	s.checkStart(c, requests, now)
	s.thread.spend(began)
	c.in = append(c.in[:0], rest...)
	return !c.gone
}

// step executes the request at the start of src and returns its length. All requests
// that were received together are executed at the same time.
func (s *Server) step(c *conn, src []byte, now uint64) (int, error) {
	s.store.catchUp(now)
	if s.store.collector.locked {
		return len(src), nil
	}
	op := codec.Op(src[0])
	handle := s.commands.handler(op)
	if handle == nil {
		return 0, unknownOp(op)
	}
	made := s.store.made
	x := &c.x
	*x = exchange{conn: c, op: op, out: x.out[:0]}
	n, err := handle(x, src)
	if err != nil {
		return 0, err
	}
	s.thread.owe(s.costs.of(op, made, len(s.store.records), s.leaked))
	if s.observer != nil {
		s.observe(c, x)
	}
	f := s.faultOf(op, x.key)
	sent := s.respond(c, x.out, f)
	if s.hazards[StrayUnit] && x.record != nil && sent && (f == nil || f.Replace == nil) {
		c.out.watch(x.record, x.unitAt)
	}
	return n, nil
}
