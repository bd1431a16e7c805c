package mockserver

import "slices"

// everyConn is a channel that every connection is subscribed to from its start. The other
// one is the channel of its own id (H8).
const everyConn = "*"

// subscription is a subscription of a connection to a channel. A connection can have
// several to the same channel (H10).
type subscription struct {
	conn  *conn
	since uint64 // ns since 1970
	read  uint64 // bytes of the payloads published on the channel since then
}

// channels are the channels that have subscriptions. The server's lock guards them. A
// slice is never changed in place, so that a loop over it can go on while subscribers
// leave.
type channels map[string][]*subscription

func (cs channels) subscribe(c *conn, name string, now uint64) {
	cs[name] = append(cs[name], &subscription{conn: c, since: now})
}

// unsubscribe ends all of c's subscriptions to a channel. It reports whether the channel exists, whether or not c is
// subscribed to it (H10).
func (cs channels) unsubscribe(c *conn, name string) bool {
	before, exists := cs[name]
	after := slices.DeleteFunc(slices.Clone(before), func(s *subscription) bool { return s.conn == c })
	cs[name] = after
	if len(after) == 0 {
		delete(cs, name)
	}
	return exists
}

// leave ends all of c's subscriptions.
func (cs channels) leave(c *conn) {
	for name := range cs {
		cs.unsubscribe(c, name)
	}
}

// Subscriptions returns how many subscriptions to a channel there are. A connection can
// have several. It has one to the channel "*" and one to the channel of its own id from
// its start, unless [Events] is off.
func (s *Server) Subscriptions(channel string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.channels[channel])
}

// Publish sends an EVENT to every connection, whatever it is subscribed to, as a
// publication on the channel "*" does on a real server. It returns how many connections
// it reached: 0 if [Events] is off. Publish panics if the channel is over 255 bytes long
// or the payload's length does not fit the value size.
//
// An EVENT counts as an outstanding response until it is sent (H4).
func (s *Server) Publish(channel string, payload []byte) (reached int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	event, err := s.protocol.event(channel, payload)
	if err != nil {
		panic("mockserver: Publish: " + err.Error())
	}
	if !s.hazards[Events] || s.store.collector.locked {
		return 0
	}
	for c := range s.open() {
		s.deliver(nil, c, event, len(payload))
		reached++
	}
	return reached
}

// deliver sends c an EVENT that a connection has published, or the test if from is nil.
func (s *Server) deliver(from, c *conn, event []byte, payload int) {
	s.queue(c, response{frame: event}, nil)
	if c == from {
		c.published += uint64(payload)
		return
	}
	c.received += uint64(payload)
	c.signal()
}
