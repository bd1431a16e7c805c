package mockserver

import (
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
	thread   thread         // spends the time of costs
	wg       sync.WaitGroup // every goroutine of the server

	mu         sync.Mutex // guards all below; held while the requests of one read are executed
	store      store
	protocol   protocol
	execution  execution // the request that is being executed
	addr       string
	listener   net.Listener // nil if nothing listens
	waiting    []net.Conn   // connections that are not served yet
	conns      []*conn      // those that are served, in the order of acceptance, until their writers end
	accepted   int
	hold       bool // no connection is served that has not been so far
	refuse     bool
	closed     bool
	leaked     int // responses, see Leaked
	channels   channels
	scanned    uint64 // the minute of the last scan
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
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{
		clock:    clock{virtual: o.virtual, start: time.Now()},
		observer: o.observer,
		hazards:  o.hazards,
		network:  o.network,
		costs:    o.costs,
		thread:   thread{busy: make(chan struct{}, 1), spins: o.network != "memory"},
		addr:     o.addr,
		channels: make(channels),
	}
	now := s.clock.now()
	s.store = store{hazards: &s.hazards, records: make(map[string]*record), start: now, now: now}
	s.store.collector = collector{hazards: &s.hazards, report: func(text string) {
		s.violations = append(s.violations, Violation{Rule: "H12", Text: text})
	}}
	s.protocol = newProtocol(s, o.valueSize)
	if err := s.listen(); err != nil {
		return nil, err
	}
	return s, nil
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

// Requests returns how many requests with the op code op were executed.
func (s *Server) Requests(op codec.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op > lastOp {
		return 0
	}
	return int(s.requests[op].total())
}

// Restart drops all connections, stops listening, and starts again at the same address,
// with the records that have not expired, or with none. A server that has locked up works
// again. The clock, counts, violations, faults and cuts stay. On an error the server is
// left without a listener.
func (s *Server) Restart(keepData bool) error {
	return s.restart(keepData, func() {})
}

// Recompile restarts the server without records, as one whose values are valueSize bytes
// wide: 1, 2, 4 or 8. Any other size is an error, and has no effect.
func (s *Server) Recompile(valueSize int) error {
	if err := checkValueSize(valueSize); err != nil {
		return err
	}
	return s.restart(false, func() { s.protocol = newProtocol(s, valueSize) })
}

// restart calls change while there are no connections.
func (s *Server) restart(keepData bool, change func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.stop()
	s.store.restart(keepData, s.clock.now())
	s.scanned = 0
	change()
	return s.listen()
}

// Close ends the server and waits for its goroutines. Closing it again does nothing. The
// records and counts can still be read.
func (s *Server) Close() error {
	s.mu.Lock()
	var err error
	if !s.closed {
		err = s.stop()
		s.closed = true
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

// stop ends the listener and all connections. The caller holds s.mu.
func (s *Server) stop() (err error) {
	s.store.catchUp(s.clock.now()) // what happens later is not this process's any more
	for _, c := range s.conns {
		c.drop()
	}
	for _, nc := range s.waiting {
		nc.Close()
	}
	s.waiting = nil
	s.hold = false
	s.leaked = 0
	if s.listener != nil {
		err = s.listener.Close()
		s.listener = nil
	}
	return err
}
