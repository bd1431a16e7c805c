package mockserver

import (
	"errors"
	"net"
	"sync"

	"github.com/throttr-go/throttr/codec"
)

const (
	// maxOutstanding is how many responses a real server keeps for a connection
	// (H4). It drops more silently.
	maxOutstanding = 1024
	// readSize is how much is taken from a connection before responses leave,
	// unless there is a service time. It is more than the server's buffer, so
	// that a flood counts as one: all of it is outstanding, however fast its
	// responses could leave.
	readSize = 64 << 10
)

// conn is one connection. Its reader executes requests, and sends what they answered
// as far as that is due; its writer sends the rest.
type conn struct {
	srv    *Server
	number int // in the order of acceptance, from 1
	id     codec.ConnID
	net    net.Conn
	in     []byte // received and not executed yet, at most codec.MaxFrame bytes
	x      exchange
	out    outbox
	deaf   bool // half open; guarded by Server.mu
	gone   bool // nothing more is executed or answered; guarded by Server.mu
	once   sync.Once
	closed chan struct{}
	// buffered connections take a write before the client reads it.
	buffered bool
	sending  sync.Mutex // held while responses are taken and sent
	group    []byte     // those being sent; guarded by sending
	// How many bytes pass until the cut, -1 for all of them.
	readLeft, writeLeft int
	// What the server knows of the connection; guarded by Server.mu.
	since                 uint64 // ns since 1970
	subscribed            int    // subscriptions
	requests              [lastOp + 1]uint64
	readBytes, writeBytes uint64
	published, received   uint64 // bytes of payloads that it published to itself, and got from others
}

// newConn is called with Server.mu held.
func newConn(s *Server, nc net.Conn, buffered bool, number int) *conn {
	c := &conn{
		srv: s, number: number, id: newID(), net: nc, buffered: buffered, closed: make(chan struct{}), readLeft: -1, writeLeft: -1,
		since: s.clock.now(),
	}
	c.out.wake = make(chan struct{}, 1)
	s.cut(c)
	if s.events {
		s.channels.subscribe(c, everybody, c.since)
		s.channels.subscribe(c, c.id.String(), c.since)
	}
	return c
}

// drop ends the connection at once. The caller holds Server.mu.
func (c *conn) drop() {
	c.leave()
	c.close()
}

// leave lets nothing more be executed or answered. The caller holds Server.mu.
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

func (c *conn) read() {
	defer c.srv.wg.Done()
	// What was answered until here still leaves: the writer closes then.
	defer c.out.finish()
	buf := make([]byte, c.srv.thread.ReadSize(readSize))
	for {
		n, err := c.net.Read(buf)
		data := buf[:n]
		cut := c.readLeft >= 0 && n > c.readLeft
		if cut {
			data = buf[:c.readLeft]
		}
		if c.readLeft >= 0 {
			c.readLeft -= len(data)
		}
		if !c.serve(data) || cut || err != nil {
			return
		}
		c.srv.thread.Wait()
	}
}

// serve executes data and lets the answers leave. Where the connection has a buffer, the
// reader sends them itself, all together: nobody has to be woken. It reports whether the
// connection goes on.
func (c *conn) serve(data []byte) bool {
	if !c.buffered {
		ok := c.feed(data)
		c.out.release()
		return ok
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if !c.feed(data) {
		return false
	}
	wait, _, ok := c.flush()
	if wait > 0 {
		c.out.release()
	}
	return ok
}

// feed executes data in portions that fit the server's buffer, as it would read
// them. It reports whether the connection goes on.
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

// execute executes the complete requests that c has received, n bytes of them just
// now, all of them before anybody else's. It reports whether the connection goes on.
func (s *Server) execute(c *conn, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.deaf {
		c.in = c.in[:0]
		return !c.gone
	}
	c.readBytes += uint64(n)
	began := s.thread.Begin()
	now := s.clock.now()
	executed := 0
	rest := c.in
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
		executed++
	}
	s.thread.Spend(began, executed)
	c.in = append(c.in[:0], rest...)
	return !c.gone
}

// step executes the request at the start of src and returns its length. All that came
// together is executed at the same time.
func (s *Server) step(c *conn, src []byte, now uint64) (int, error) {
	s.store.settle(now)
	if s.store.locked {
		return len(src), nil
	}
	op := codec.Op(src[0])
	play := s.player.handler(op)
	if play == nil {
		return 0, unplayed(op)
	}
	x := &c.x
	*x = exchange{conn: c, op: op, out: x.out[:0]}
	n, err := play(x, src)
	if err != nil {
		return 0, err
	}
	if s.observer != nil {
		s.observe(c, x)
	}
	s.respond(c, x.out, s.faultOf(op))
	return n, nil
}
