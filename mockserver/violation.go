package mockserver

import (
	"errors"
	"fmt"
	"slices"
)

// Violation is something that a client did and that would have crashed or
// stalled a real server, or silently lost a response. It ends the connection at
// once, with responses that have not left yet.
//
// H4 counts responses that wait to be written. Over a socket they leave as fast
// as they are made, whether or not the client reads: only a flood in one write
// adds up. A [Fault] with a Delay makes every request in flight count.
type Violation struct {
	Rule string // the hazard of the protocol document: "H4", "H5", "H6" or "H13"
	Conn int    // the connection, numbered from 1 in the order of acceptance
	Text string // what happened, in words
}

// String returns all three, such as "H6: connection 1: …".
func (v Violation) String() string {
	return fmt.Sprintf("%s: connection %d: %s", v.Rule, v.Conn, v.Text)
}

// Violations returns all violations so far, in the order of their happening.
func (s *Server) Violations() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// breach is a violation on its way up from a request to the connection.
type breach struct {
	rule string
	text string
}

// Error returns the rule and what was wrong.
func (b *breach) Error() string { return b.rule + ": " + b.text }

func breachf(rule, format string, args ...any) error {
	return &breach{rule: rule, text: fmt.Sprintf(format, args...)}
}

// violate records err, which is a breach, and drops the connection. The caller
// holds s.mu.
func (s *Server) violate(c *conn, err error) {
	var b *breach
	if !errors.As(err, &b) {
		panic(err)
	}
	s.violations = append(s.violations, Violation{Rule: b.rule, Conn: c.number, Text: b.text})
	c.drop()
}
