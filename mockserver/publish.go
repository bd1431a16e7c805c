package mockserver

import "github.com/throttr-go/throttr/codec"

// Publish sends an EVENT to every connection, as a publication on the channel
// "*" does on a real server, and returns how many it reached: none where
// [Events] is off. The channel has at most 255 bytes, and the payload's length
// fits the value size; Publish panics otherwise.
//
// An EVENT counts as an outstanding response until it has left (H4).
func (s *Server) Publish(channel string, payload []byte) int {
	frame, err := s.player.event(nil, channel, payload)
	if err != nil {
		panic("mockserver: Publish: " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.events || s.store.locked {
		return 0
	}
	reached := 0
	for c := range s.conns {
		if c.gone {
			continue
		}
		s.respond(c, frame, nil)
		c.out.release()
		reached++
	}
	return reached
}

func (p *sized[T]) event(dst []byte, channel string, payload []byte) ([]byte, error) {
	return codec.Event[T]{Channel: []byte(channel), Payload: payload}.AppendBinary(dst)
}
