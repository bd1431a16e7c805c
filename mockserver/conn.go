package mockserver

import (
	"crypto/rand"
	"errors"
	"math"
	"net"
	"slices"
	"sync"

	"github.com/throttr-go/throttr/codec"
)

// readSize returns how many bytes are read from a connection before responses are sent. If requests take time, it is
// what a real server's buffer holds. Otherwise it is more, so that a flood counts as one: all of its responses are
// outstanding, however fast they could be sent.
func (s *Server) readSize() int {
	if s.costs == (costs{}) {
		return 64 << 10
	}
	return codec.MaxFrame
}

// conn is a connection. Its reader goroutine executes requests. Over a socket it sends the responses as well, which
// saves waking the writer; in memory, where a client may not read before all of its requests are read, the writer
// goroutine does. The writer also sends what others cause: EVENTs, and responses that are delayed.
type conn struct {
	srv    *Server
	number int // in the order of acceptance, from 1
	id     codec.ConnID
	net    net.Conn
	since  uint64        // ns since 1970
	wake   chan struct{} // has room for one signal to the writer

	// Used only by the reader.
	in       []byte // received and not executed yet
	readLeft int    // how many bytes pass before the cut; math.MaxInt: there is none

	sending   sync.Mutex // guards frames, sizes and writeLeft; held while responses are sent
	frames    []byte     // responses that are being sent
	sizes     []int      // of each
	writeLeft int        // how many bytes pass before the cut; math.MaxInt: there is none

	// Guarded by Server.mu.
	out                   []response // that have not been sent
	buf                   []byte     // has the frames of the last of them
	held                  bool       // nothing is sent before the reader has executed what it has read
	closed                bool       // it has ended
	halfOpen              bool       // what the client sends is lost, and nothing is sent
	dropped               bool       // the server has ended the connection
	gone                  bool       // no more requests are executed: it ends when all responses are sent
	sent                  int        // responses that were sent since the last read
	packets               int        // with requests, during the start-up
	requests              [lastOp + 1]uint64
	readBytes, writeBytes uint64
	published, received   uint64 // bytes of payloads that it has received: of its own, and of others
}

// newConn makes a connection that is not served yet. The caller holds s.mu.
func (s *Server) newConn(nc net.Conn) *conn {
	s.accepted++
	c := &conn{
		srv: s, number: s.accepted, net: nc, since: s.clock.now(),
		wake: make(chan struct{}, 1), readLeft: math.MaxInt, writeLeft: math.MaxInt,
	}
	rand.Read(c.id[:]) // never fails
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
	c.close()
}

// leave ends the execution of requests and the subscriptions. The caller holds Server.mu.
func (c *conn) leave() {
	if !c.gone {
		c.gone = true
		c.srv.channels.leave(c)
	}
}

// close ends the connection and its goroutines. The caller holds Server.mu.
func (c *conn) close() {
	c.closed = true
	c.leave()
	c.net.Close()
	c.signal()
}

// read is the reader goroutine.
func (c *conn) read() {
	buf := make([]byte, c.srv.readSize())
	for {
		n, err := c.net.Read(buf)
		data := buf[:min(n, c.readLeft)]
		c.readLeft -= len(data)
		if !c.serve(data) || len(data) < n || err != nil {
			c.ended(err)
			return
		}
	}
}

// serve executes the requests that are complete with data, as many at a time as fit a real server's buffer, and sends
// the responses, all together. It reports whether the connection goes on.
func (c *conn) serve(data []byte) bool {
	if len(data) == 0 {
		return true
	}
	c.in = append(c.in, data...)
	ok, progress := true, true
	for ok && progress && len(c.in) > 0 {
		var n int
		n, ok = c.srv.turn(c, c.in[:min(len(c.in), codec.MaxFrame)])
		progress = n > 0
		c.in = slices.Delete(c.in, 0, n)
	}
	c.srv.mu.Lock()
	c.held = false
	c.srv.mu.Unlock()
	if inMemory := c.net.LocalAddr().Network() == "pipe"; inMemory || !ok {
		c.signal()
		return ok
	}
	return c.flush()
}

// turn executes the complete requests at the start of src, without requests of other connections in between and
// all at the same time, and holds their responses back. It returns their length, and whether the connection goes on.
func (s *Server) turn(c *conn, src []byte) (n int, ok bool) {
	s.thread.acquire()
	defer s.thread.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.halfOpen {
		return len(src), !c.gone
	}
	c.held = true
	c.sent = 0
	now := s.clock.now()
	first, requests := len(c.out), 0
	for n < len(src) && !c.gone {
		took, err := s.step(c, src[n:], now)
		if errors.Is(err, codec.ErrShort) { // it will fit: a frame that does not is malformed before its end
			break
		}
		if err != nil {
			s.violate(c, err)
			break
		}
		n += took
		requests++
	}
	if requests > 0 {
		s.thread.owed += s.costs.turn + s.scan()
		s.checkStart(c, requests, now)
	}
	if s.hazards[Reorder] {
		slices.Reverse(c.out[first:])
	}
	return n, !c.gone
}

// step executes the request at the start of src and returns its length.
func (s *Server) step(c *conn, src []byte, now uint64) (n int, err error) {
	s.store.catchUp(now)
	if s.store.collector.locked {
		return len(src), nil
	}
	made := s.store.made
	x := &s.execution
	*x = execution{conn: c, response: response{frame: x.frame[:0]}}
	if n, err = s.protocol.execute(x, src); err != nil {
		return 0, err
	}
	s.thread.owed += s.cost(x.op, made)
	if s.observer != nil {
		s.observe(x)
	}
	s.queue(c, x.response, s.faultOf(x.op, x.key))
	return n, nil
}
