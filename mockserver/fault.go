package mockserver

import (
	"bytes"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Fault is a fault of responses. The requests are executed in any case. Its effects can
// be combined: Duplicate doubles the response that Replace sets, and Delay delays both.
// Drop and Disconnect override these three.
type Fault struct {
	Op    codec.Op // the requests whose responses suffer; 0: all
	Key   string   // only requests for this key; "": all
	Skip  int      // how many of them are left alone first
	Times int      // how many suffer after that; 0: all, until the fault is removed

	// Delay is how long after its execution the response is sent, by the real clock.
	// Responses keep their order, so those behind it wait, too.
	Delay time.Duration
	// Drop loses the response: each later one belongs to the wrong request.
	Drop bool
	// Duplicate sends the response twice.
	Duplicate bool
	// Replace is sent instead of the response, unless it is nil.
	Replace []byte
	// Disconnect ends the connection instead of responding. Earlier responses are sent
	// first, later requests are not executed.
	Disconnect bool
}

// Inject applies f to responses from now on, on every connection. If several faults
// match a response, only the one that was injected first applies, and only it counts the
// response. remove ends the fault, and can be called more than once.
func (s *Server) Inject(f Fault) (remove func()) {
	f.Replace = bytes.Clone(f.Replace)
	t := &trigger[Fault]{action: f, skip: f.Skip, times: f.Times}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, t)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = without(s.faults, t)
	}
}

// Send sends p on every connection, though no request asked for it, and returns how many
// connections there are. It counts as a response (H4).
func (s *Server) Send(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := 0
	for c := range s.conns {
		if !c.gone {
			s.respond(c, p, nil)
			c.out.signal()
			sent++
		}
	}
	return sent
}

// Split sends responses in writes of at most n bytes. 0 removes the bound.
func (s *Server) Split(n int) { s.split.Store(int64(max(n, 0))) }

// faultOf returns the fault of the next response to op, whose request has a key, or nil.
func (s *Server) faultOf(op codec.Op, key []byte) *Fault {
	for _, t := range s.faults {
		a := &t.action
		if (a.Op == 0 || a.Op == op) && (a.Key == "" || a.Key == string(key)) && t.fires() {
			if t.spent {
				s.faults = without(s.faults, t)
			}
			return &t.action
		}
	}
	return nil
}

// respond puts a response in c's outbox, after applying f to it, if that is not nil. It returns
// false if the response is lost. The caller holds s.mu.
func (s *Server) respond(c *conn, frame []byte, f *Fault) (sent bool) {
	if c.halfOpen {
		return false
	}
	var due time.Time
	if f != nil {
		if f.Disconnect {
			c.leave()
			c.out.finish()
			return false
		}
		if f.Replace != nil {
			frame = f.Replace
		}
		if f.Drop || len(frame) == 0 {
			return false
		}
		if f.Duplicate {
			frame = slices.Concat(frame, frame)
		}
		if f.Delay > 0 {
			due = time.Now().Add(f.Delay)
		}
	}
	if s.hazards[Overflow] && c.out.len() >= maxOutstanding {
		return false
	}
	c.writeBytes += uint64(len(frame))
	if c.out.push(frame, due) > maxOutstanding {
		s.violate(c, breachf("H4", "more than %d responses are outstanding", maxOutstanding))
	}
	return true
}

// trigger decides when an action with Skip and Times is due.
type trigger[A any] struct {
	action A
	skip   int
	times  int // 0: without end
	spent  bool
}

// fires counts an occasion for the action, and reports whether to act.
func (t *trigger[A]) fires() bool {
	if t.skip > 0 {
		t.skip--
		return false
	}
	if t.times > 0 {
		t.times--
		t.spent = t.times == 0
	}
	return true
}

// without returns a copy of triggers without t.
func without[A any](triggers []*trigger[A], t *trigger[A]) []*trigger[A] {
	return slices.DeleteFunc(slices.Clone(triggers), func(o *trigger[A]) bool { return o == t })
}
