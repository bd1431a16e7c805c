package mockserver

import "github.com/throttr-go/throttr/codec"

// Publish sends an EVENT to every connection, whatever it is subscribed to, as a
// publication on the channel "*" does on a real server. It returns how many connections
// it reached: 0 if [Events] is off. Publish panics if the channel is over 255 bytes long
// or the payload's length does not fit the value size.
//
// An EVENT counts as an outstanding response until it is sent (H4).
func (s *Server) Publish(channel string, payload []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	frame, err := s.commands.event(nil, channel, payload)
	if err != nil {
		panic("mockserver: Publish: " + err.Error())
	}
	if !s.hazards[Events] || s.store.collector.locked {
		return 0
	}
	reached := 0
	for c := range s.conns {
		if c.gone {
			continue
		}
		s.deliver(c, frame, len(payload))
		reached++
	}
	return reached
}

// deliver sends c an EVENT that another connection has published.
func (s *Server) deliver(c *conn, frame []byte, payload int) {
	c.received += uint64(payload)
	s.respond(c, frame, nil)
	c.out.signal()
}

// publish sends the EVENTs before the response, so that a publisher that is subscribed
// gets its own EVENT first (H8).
func (p *sized[T]) publish(x *exchange, m codec.Publish[T]) error {
	s := x.conn.srv
	subs := s.channels[string(m.Channel)]
	if len(subs) > 0 {
		// An EVENT is as long as the PUBLISH, so it fits a frame.
		s.event, _ = codec.Event[T](m).AppendBinary(s.event[:0])
	}
	for _, sub := range subs {
		if sub.conn.gone {
			continue
		}
		sub.read += uint64(len(m.Payload))
		if sub.conn == x.conn {
			x.conn.published += uint64(len(m.Payload))
			s.respond(x.conn, s.event, nil)
			continue
		}
		s.deliver(sub.conn, s.event, len(m.Payload))
	}
	x.status(nil, len(subs) > 0)
	return nil
}

func (p *sized[T]) event(dst []byte, channel string, payload []byte) ([]byte, error) {
	return codec.Event[T]{Channel: []byte(channel), Payload: payload}.AppendBinary(dst)
}
