package mockserver

import "math"

// Direction is the direction of bytes on a connection.
type Direction int

const (
	// FromClient is what the server reads.
	FromClient Direction = iota
	// ToClient is what the server writes.
	ToClient
)

// String returns "from client" or "to client".
func (d Direction) String() string {
	if d == ToClient {
		return "to client"
	}
	return "from client"
}

// Cut ends connections in the middle of a conversation.
type Cut struct {
	Direction Direction
	// After is how many bytes pass in that direction, counted from the beginning of the
	// connection, the client's value-size probe included. The connection ends before the
	// next byte: with 0, no byte passes.
	//
	// With FromClient, the requests that are complete within these bytes are executed and
	// answered, and no other. With ToClient, all requests that were read are executed, and
	// only the responses are cut.
	After int
	Skip  int // how many connections are left alone first
	Times int // how many are cut after that; 0: all, until the cut is removed
}

// Cut applies c to connections that begin from now on. If several cuts apply in one
// direction, the one that was made first does. remove ends it for connections that begin
// later, and can be called more than once.
func (s *Server) Cut(c Cut) (remove func()) {
	c.After = max(c.After, 0)
	return arm(s, &s.cuts, &trigger[Cut]{action: c, skip: c.Skip, times: c.Times})
}

// cut applies the cuts to a new connection. The caller holds s.mu.
func (s *Server) cut(c *conn) {
	for _, t := range s.cuts {
		left := &c.readLeft
		if t.action.Direction == ToClient {
			left = &c.writeLeft
		}
		if *left == math.MaxInt && t.fires() {
			*left = t.action.After
		}
	}
}
