package mockserver

import (
	"bytes"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// maxOutstanding is how many responses a real server keeps for a connection. It
// silently drops any more (H4).
const maxOutstanding = 1024

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
	return arm(s, &s.faults, &trigger[Fault]{action: f, skip: f.Skip, times: f.Times})
}

// Send sends p on every connection, though no request asked for it, and returns how many
// connections there are. It counts as a response (H4).
func (s *Server) Send(p []byte) (sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open() {
		s.queue(c, response{frame: p}, nil)
		c.signal()
		sent++
	}
	return sent
}

// Split sends responses in writes of at most n bytes. 0 removes the bound.
func (s *Server) Split(n int) { s.split.Store(int64(max(n, 0))) }

// faultOf returns the fault of the next response to op, whose request has a key, or nil.
func (s *Server) faultOf(op codec.Op, key []byte) *Fault {
	for _, t := range s.faults {
		f := &t.action
		if (f.Op == 0 || f.Op == op) && (f.Key == "" || f.Key == string(key)) && t.fires() {
			return f
		}
	}
	return nil
}

// queue adds a response to those that c has to send, after applying f to it, if that is not nil. The caller holds s.mu.
func (s *Server) queue(c *conn, r response, f *Fault) {
	if c.halfOpen {
		return
	}
	if f != nil {
		if f.Disconnect {
			c.leave()
			return
		}
		if f.Replace != nil {
			r = response{frame: f.Replace}
		}
		if f.Drop || len(r.frame) == 0 {
			return
		}
		if f.Duplicate {
			r.frame = slices.Concat(r.frame, r.frame)
		}
		if f.Delay > 0 {
			r.due = time.Now().Add(f.Delay)
			time.AfterFunc(f.Delay, c.signal)
		}
	}
	if s.hazards[Overflow] && len(c.out) >= maxOutstanding {
		return
	}
	c.writeBytes += uint64(len(r.frame))
	if len(c.buf)+len(r.frame) > cap(c.buf) {
		c.buf = make([]byte, 0, max(codec.MaxFrame, len(r.frame))) // what is outstanding is in the one before
	}
	start := len(c.buf)
	c.buf = append(c.buf, r.frame...)
	r.frame = c.buf[start:]
	c.out = append(c.out, r)
	if len(c.out) > maxOutstanding {
		s.violate(c, breachf("H4", "more than %d responses are outstanding", maxOutstanding))
	}
}

// trigger decides when an action with Skip and Times is due.
type trigger[A any] struct {
	action    A
	skip      int
	times     int // 0: without end
	occasions int // so far
}

// fires counts an occasion for the action, and reports whether to act.
func (t *trigger[A]) fires() bool {
	t.occasions++
	n := t.occasions - t.skip
	return n > 0 && (t.times == 0 || n <= t.times)
}

// arm adds t to a list of the server, and returns a function that removes it.
func arm[A any](s *Server, list *[]*trigger[A], t *trigger[A]) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, t)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*list = slices.DeleteFunc(*list, func(o *trigger[A]) bool { return o == t })
	}
}
