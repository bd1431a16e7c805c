package mockserver

import (
	"fmt"
	"slices"
)

// Violation is an event that would have crashed, silenced or stalled a real server, or
// silently lost a response.
//
// H4, H5, H6, H13, H15, H17 and H27 are caused by a client. They end its connection at once, and
// responses that have not been sent yet are lost. H12, which is recorded only with
// [LockUp] on, is caused by records that expire by themselves; see [Server.LockedUp].
//
// H4 counts responses that have not been sent yet. Over a socket they are sent as fast
// as they are made, whether or not the client reads them: only a flood in one write adds
// up. With a [Fault] that has a Delay, every request in flight counts.
type Violation struct {
	Rule string // the hazard of the protocol document: "H4", "H5", "H6", "H12", "H13", "H15", "H17" or "H27"
	Conn int    // the connection, numbered from 1 in the order of acceptance; 0 for H12
	Text string // what happened, in words
}

// String returns all three, such as "H6: connection 1: …" or "H12: …".
func (v Violation) String() string {
	if v.Conn == 0 {
		return v.Rule + ": " + v.Text
	}
	return fmt.Sprintf("%s: connection %d: %s", v.Rule, v.Conn, v.Text)
}

// Violations returns all violations so far, in the order in which they happened.
func (s *Server) Violations() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.store.catchUp(s.clock.now()) // which can lock the server up
	}
	return slices.Clone(s.violations)
}

// breach is a violation that a request has caused, as an error.
type breach Violation

// Error returns the rule and what happened.
func (b breach) Error() string { return Violation(b).String() }

func breachf(rule, format string, args ...any) error {
	return breach{Rule: rule, Text: fmt.Sprintf(format, args...)}
}

// violate records err, which is a breach, and drops the connection. The caller holds
// s.mu.
func (s *Server) violate(c *conn, err error) {
	v := Violation(err.(breach))
	v.Conn = c.number
	s.violations = append(s.violations, v)
	c.drop()
}
