package mockserver

import (
	"bytes"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Fault is something that goes wrong with responses. The requests are executed
// all the same. Its fields can be combined: Replace is what Duplicate doubles
// and Delay delays; Drop and Disconnect leave nothing to do for these three.
type Fault struct {
	Op    codec.Op // the requests it is about; 0 for all
	Skip  int      // leaves that many of them alone first
	Times int      // then goes wrong that many times; 0 for every time until removed

	// Delay is how long the response stays after its execution, by the real
	// clock. Those behind it wait, too: responses keep their order.
	Delay time.Duration
	// Drop swallows the response: each later one answers the wrong request.
	Drop bool
	// Duplicate sends the response twice.
	Duplicate bool
	// Replace is sent instead of the response, unless nil.
	Replace []byte
	// Disconnect ends the connection instead of answering. Earlier responses
	// leave first, later requests are not executed.
	Disconnect bool
}

// Inject makes f happen from now on, on every connection. Where several faults
// apply to a response, the one injected first happens, and the others do not
// count it. remove ends the fault; it can be called more than once.
func (s *Server) Inject(f Fault) (remove func()) {
	f.Replace = bytes.Clone(f.Replace)
	t := &turn[Fault]{what: f, skip: f.Skip, times: f.Times}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, t)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = without(s.faults, t)
	}
}

// Send has the server send p to every connection though nobody has asked for it, and
// returns how many there are. It counts as a response (H4).
func (s *Server) Send(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := 0
	for c := range s.conns {
		if !c.gone {
			s.respond(c, p, nil)
			c.out.release()
			sent++
		}
	}
	return sent
}

// Split makes responses leave in writes of at most n bytes; 0 is no bound.
func (s *Server) Split(n int) { s.split.Store(int64(max(n, 0))) }

// faultOf returns the fault of the next response to op, or nil.
func (s *Server) faultOf(op codec.Op) *Fault {
	for _, t := range s.faults {
		if (t.what.Op == 0 || t.what.Op == op) && t.come() {
			if t.over {
				s.faults = without(s.faults, t)
			}
			return &t.what
		}
	}
	return nil
}

// respond puts a response in c's outbox, where f, if not nil, befalls it. The
// caller holds s.mu.
func (s *Server) respond(c *conn, frame []byte, f *Fault) {
	if c.deaf {
		return
	}
	var due time.Time
	if f != nil {
		if f.Disconnect {
			c.leave()
			c.out.finish()
			return
		}
		if f.Replace != nil {
			frame = f.Replace
		}
		if f.Drop || len(frame) == 0 {
			return
		}
		if f.Duplicate {
			frame = slices.Concat(frame, frame)
		}
		if f.Delay > 0 {
			due = time.Now().Add(f.Delay)
		}
	}
	if s.overflow && c.out.len() >= maxOutstanding {
		return
	}
	c.writeBytes += uint64(len(frame))
	if c.out.push(frame, due) > maxOutstanding {
		s.violate(c, breachf("H4", "more than %d responses are outstanding", maxOutstanding))
	}
}

// turn counts when something with Skip and Times happens.
type turn[W any] struct {
	what  W
	skip  int
	times int // 0 for ever
	over  bool
}

// come counts an occasion, and reports whether it is one.
func (t *turn[W]) come() bool {
	if t.skip > 0 {
		t.skip--
		return false
	}
	if t.times > 0 {
		t.times--
		t.over = t.times == 0
	}
	return true
}

// without returns turns without t, in a slice of its own.
func without[W any](turns []*turn[W], t *turn[W]) []*turn[W] {
	return slices.DeleteFunc(slices.Clone(turns), func(o *turn[W]) bool { return o == t })
}
