package mockserver

// Direction is where bytes go.
type Direction int

const (
	// FromClient is what the server reads.
	FromClient Direction = iota
	// ToClient is what the server writes.
	ToClient
)

// String returns the direction in words.
func (d Direction) String() string {
	if d == ToClient {
		return "to client"
	}
	return "from client"
}

// Cut ends connections in the middle of a conversation.
type Cut struct {
	Direction Direction
	// After is how many bytes pass in that direction, counted from the
	// connection's beginning, the client's value-size probe included. The
	// connection ends where the next byte would pass: with 0 none does.
	//
	// A cut from the client: the requests that are complete within the bytes are
	// executed and answered, the rest never happened. A cut to the client: all
	// requests that were read are executed, only the answers are cut.
	After int
	Skip  int // leaves that many connections alone first
	Times int // then cuts that many; 0 for each until removed
}

// Cut makes c happen to connections that begin from now on. Where several apply
// in one direction, the one made first does. remove ends it for connections yet
// to begin; it can be called more than once.
func (s *Server) Cut(c Cut) (remove func()) {
	c.After = max(c.After, 0)
	t := &turn[Cut]{what: c, skip: c.Skip, times: c.Times}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts = append(s.cuts, t)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cuts = without(s.cuts, t)
	}
}

// cut applies the cuts to a new connection. The caller holds s.mu.
func (s *Server) cut(c *conn) {
	for _, t := range s.cuts {
		left := &c.readLeft
		if t.what.Direction == ToClient {
			left = &c.writeLeft
		}
		if *left >= 0 || !t.come() {
			continue
		}
		*left = t.what.After
		if t.over {
			s.cuts = without(s.cuts, t)
		}
	}
}
