package mockserver

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/servicetime"
)

// Server is a running mock server. [Start] and [RunT] make one.
type Server struct {
	clock    clock
	observer func(Exec)
	events   bool
	overflow bool
	network  string
	split    atomic.Int64
	thread   *servicetime.Thread
	wg       sync.WaitGroup // every goroutine of the server

	lifecycle sync.Mutex // held by Restart and Close, taken before mu

	mu         sync.Mutex // guards all below; held while a batch is executed
	store      store
	player     player
	addr       string
	listener   net.Listener // nil where nothing listens
	conns      map[*conn]struct{}
	accepted   int
	refuse     bool
	down       bool // between the two halves of a restart
	closed     bool
	channels   channels
	event      []byte // reused by each PUBLISH
	since      uint64 // when the server started or was restarted, ns since 1970
	requests   [lastOp + 1]meter
	violations []Violation
	faults     []*turn[Fault]
	cuts       []*turn[Cut]
}

// Start starts a server. The caller closes it.
//
// Errors: a value size or a network that does not exist, and those of listening.
func Start(opts ...Option) (*Server, error) {
	o := defaults()
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{
		clock:    clock{virtual: o.virtual, start: time.Now()},
		observer: o.observer,
		events:   o.hazards[Events],
		overflow: o.hazards[Overflow],
		network:  o.network,
		thread:   o.thread,
		addr:     o.addr,
		conns:    make(map[*conn]struct{}),
		channels: make(channels),
		store: store{
			grace:   o.hazards[Grace],
			late:    o.hazards[LateExpiry],
			wrap:    o.hazards[Wrap],
			lockUp:  o.hazards[LockUp],
			records: make(map[string]*record),
		},
	}
	s.since = s.clock.now()
	s.store.start, s.store.now = s.since, s.since
	s.compile(o.valueSize)
	s.Split(o.split)
	if err := s.thread.Start(&s.wg); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		s.thread.Close()
		return nil, err
	}
	return s, nil
}

// compile makes the server one of a value size.
func (s *Server) compile(valueSize int) {
	s.store.max = ^uint64(0) >> (64 - 8*valueSize)
	s.player = newPlayer(&s.store, valueSize, s.observer != nil)
}

// listen begins to accept connections at the server's address, and fixes the
// port of that where it was left open.
func (s *Server) listen() error {
	if s.network == "memory" {
		return nil
	}
	ln, err := net.Listen(s.network, s.addr)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.addr = ln, ln.Addr().String()
	s.wg.Add(1)
	go s.accept(ln)
	return nil
}

func (s *Server) accept(ln net.Listener) {
	defer s.wg.Done()
	for {
		nc, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(time.Millisecond) // out of file descriptors, or the peer is gone again
		case !s.admit(nc, true):
			nc.Close()
		}
	}
}

// admit begins to serve nc, or reports that the server does not want it. A buffered one
// takes a write before the client reads it.
func (s *Server) admit(nc net.Conn, buffered bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse || s.down || s.closed {
		return false
	}
	s.accepted++
	c := newConn(s, nc, buffered, s.accepted)
	s.conns[c] = struct{}{}
	s.wg.Add(2)
	go c.read()
	go c.write()
	return true
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.leave()
	delete(s.conns, c)
}

// Addr returns where the server listens, in the form that a client's
// configuration takes: "127.0.0.1:9000", "unix:///path" or, in memory, a name.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.network == "unix" {
		return "unix://" + s.addr
	}
	return s.addr
}

// Conns returns how many connections are open.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Requests returns how many requests with this op code were executed.
func (s *Server) Requests(op codec.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op > lastOp {
		return 0
	}
	return int(s.requests[op].total())
}

// Refuse makes the server turn away new connections, or take them again: those
// over a socket are accepted and closed at once, [Server.Dial] returns
// [ErrRefused]. Open connections stay.
func (s *Server) Refuse(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = on
}

// HalfOpen leaves all connections half open, as a host that has vanished does: what
// clients send on them is lost, nothing is executed or answered, and nobody is told of
// an end. Connections that begin later are whole.
func (s *Server) HalfOpen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.deaf = true
		c.out.clear()
	}
}

// Disconnect drops all connections, with responses that have not left yet.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.drop()
	}
}

// Restart drops all connections, stops listening, and begins again at the same
// address, with the records as they are or with none. A locked server comes back
// to life. The clock, counts, violations, faults and cuts stay. Where it returns
// an error, the server is left without a listener.
func (s *Server) Restart(keepData bool) error {
	return s.restart(func() { s.store.restart(keepData) })
}

// Recompile is [Server.Restart] without the records, as a server whose values are
// valueSize bytes wide: 1, 2, 4 or 8. Any other is an error, and nothing happens.
func (s *Server) Recompile(valueSize int) error {
	o := options{valueSize: valueSize, network: s.network}
	if err := o.check(); err != nil {
		return err
	}
	return s.restart(func() {
		s.store.restart(false)
		s.compile(valueSize)
	})
}

// restart has change done, under s.mu, while nobody is connected.
func (s *Server) restart(change func()) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	ln, err := s.halt(false)
	if err != nil {
		return err
	}
	if ln != nil {
		ln.Close()
	}
	s.mu.Lock()
	change()
	s.since = s.clock.now()
	s.mu.Unlock()
	if err := s.listen(); err != nil {
		return err
	}
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	return nil
}

// Close ends the server and waits for its goroutines. Closing again does
// nothing. What the server holds and has counted can still be looked at.
func (s *Server) Close() error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	ln, err := s.halt(true)
	if err != nil {
		return nil
	}
	if ln != nil {
		err = ln.Close()
	}
	s.thread.Close()
	s.wg.Wait()
	return err
}

// halt drops all connections, takes no new ones, and returns the listener to be
// closed. It returns net.ErrClosed where the server is closed already.
func (s *Server) halt(forGood bool) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	s.down, s.closed = true, forGood
	for c := range s.conns {
		c.drop()
	}
	ln := s.listener
	s.listener = nil
	return ln, nil
}
