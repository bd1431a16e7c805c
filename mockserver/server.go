package mockserver

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/api"
)

// Server is a running mock server. [Start] and [RunT] make one.
type Server struct {
	clock    clock
	observer func(Exec)
	hazards  [hazardCount]bool
	network  string
	split    atomic.Int64
	costs    costs
	thread   *thread        // spends the time of costs; nil: requests take none
	wg       sync.WaitGroup // every goroutine of the server

	lifecycle sync.Mutex // held by Restart and Close; locked before mu

	mu         sync.Mutex // guards all below; held while the requests of one read are executed
	store      store
	commands   commands
	addr       string
	listener   net.Listener // nil if nothing listens
	conns      map[*conn]struct{}
	accepted   int
	waiting    []arrival // connections that are not served yet
	hold       bool      // none is served
	leaked     int       // responses, see Leaked
	refuse     bool
	down       bool // during a restart
	closed     bool
	channels   channels
	event      []byte // reused by each PUBLISH
	since      uint64 // when the server started or restarted, ns since 1970
	scanned    uint64 // the minute of the last scan, from since
	requests   [lastOp + 1]meter
	violations []Violation
	faults     []*trigger[Fault]
	cuts       []*trigger[Cut]
}

// Start starts a server. The caller closes it.
//
// It returns an error for settings that do not exist or are out of range, and if the server can't listen. It panics
// if an option is nil.
func Start(opts ...Option) (*Server, error) {
	o := defaults()
	api.Apply("mockserver: Start", &o, opts)
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{
		clock:    clock{virtual: o.virtual, start: time.Now()},
		observer: o.observer,
		hazards:  o.hazards,
		network:  o.network,
		costs:    o.costs,
		addr:     o.addr,
		conns:    make(map[*conn]struct{}),
		channels: make(channels),
	}
	s.since = s.clock.now()
	s.store = store{
		wrap:      o.hazards[Wrap],
		records:   make(map[string]*record),
		collector: newCollector(&o, s.lockedUp),
		garbler:   garbler{on: o.hazards[GarbledList]},
		start:     s.since,
		now:       s.since,
	}
	s.compile(o.valueSize)
	if o.costs != (costs{}) {
		var err error
		if s.thread, err = newThread(o.network == "memory", &s.wg); err != nil {
			return nil, err
		}
	}
	if err := s.listen(); err != nil {
		s.thread.close()
		return nil, err
	}
	return s, nil
}

// lockedUp records that the server has locked up (H12). The caller holds s.mu.
func (s *Server) lockedUp(text string) {
	s.violations = append(s.violations, Violation{Rule: "H12", Text: text})
}

// compile sets the value size. The caller holds s.mu.
func (s *Server) compile(valueSize int) {
	s.store.max = ^uint64(0) >> (64 - 8*valueSize)
	s.commands = newCommands(&s.store, valueSize, s.observer != nil)
}

// listen begins to accept connections at the server's address. If its port is 0, it
// becomes the port that the system has chosen.
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
			time.Sleep(time.Millisecond) // no file descriptor is left, or the client is gone again
		case !s.admit(nc, true):
			nc.Close()
		}
	}
}

// forget removes a connection that has ended.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.countUnread()
	c.leave()
	delete(s.conns, c)
}

// Addr returns where the server listens, in the form of Config.Servers of package
// throttr: "127.0.0.1:9000" or "unix:///path". In memory it is a name.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.network == "unix" {
		return "unix://" + s.addr
	}
	return s.addr
}

// Conns returns how many connections are open. A client that has closed one may still be counted for a moment.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := 0
	for c := range s.conns {
		if !c.gone {
			open++
		}
	}
	return open
}

// Requests returns how many requests with the op code op were executed.
func (s *Server) Requests(op codec.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op > lastOp {
		return 0
	}
	return int(s.requests[op].total())
}

// Refuse makes the server refuse new connections, or accept them again. Over a socket it
// closes them at once; [Server.Dial] returns [ErrRefused]. Open connections stay.
func (s *Server) Refuse(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = on
}

// HalfOpen leaves all connections half open, as a host does that has vanished: what
// clients send on them is lost, they get no response, and they do not learn that the
// connection is dead. Connections that begin later work.
func (s *Server) HalfOpen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.halfOpen = true
		c.out.clear()
	}
}

// Disconnect drops all connections. Responses that have not been sent yet are lost.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.drop()
	}
}

// Restart drops all connections, stops listening, and starts again at the same address,
// with the records that have not expired, or with none. A server that has locked up works
// again. The clock, counts, violations, faults and cuts stay. On an error the server is
// left without a listener.
func (s *Server) Restart(keepData bool) error {
	return s.restart(func() { s.store.restart(keepData, s.clock.now()) })
}

// Recompile restarts the server without records, as one whose values are valueSize bytes
// wide: 1, 2, 4 or 8. Any other size is an error, and has no effect.
func (s *Server) Recompile(valueSize int) error {
	o := options{valueSize: valueSize, network: s.network}
	if err := o.check(); err != nil {
		return err
	}
	return s.restart(func() {
		s.store.restart(false, s.clock.now())
		s.compile(valueSize)
	})
}

// restart calls change, with s.mu held, while there are no connections.
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
	s.since, s.scanned = s.clock.now(), 0
	s.mu.Unlock()
	if err := s.listen(); err != nil {
		return err
	}
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	return nil
}

// Close ends the server and waits for its goroutines. Closing it again does nothing. The
// records and counts can still be read.
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
	s.thread.close()
	s.wg.Wait()
	return err
}

// halt drops all connections, accepts no new ones, and returns the listener for the
// caller to close. It returns net.ErrClosed if the server is closed already.
func (s *Server) halt(forGood bool) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	s.store.catchUp(s.clock.now()) // what happens later is not the server's any more
	s.down, s.closed = true, forGood
	for c := range s.conns {
		c.drop()
	}
	s.dropWaiting()
	s.hold, s.leaked = false, 0
	ln := s.listener
	s.listener = nil
	return ln, nil
}
