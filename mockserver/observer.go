package mockserver

import (
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Exec is an executed request, as [WithObserver] reports it.
type Exec struct {
	Conn    int           // the connection, numbered from 1 in the order of acceptance
	Time    time.Time     // of the server's clock
	Op      codec.Op      // the request's op code
	Key     string        // what it was about; "" where the op has no key
	Request codec.Request // the request itself; its bytes are valid until the observer returns
	Status  bool          // the status byte of the response
	Quota   uint64        // the live counter under Key afterwards, 0 if there is none
}

// observe reports what x has just executed. The caller holds s.mu.
func (s *Server) observe(c *conn, x *exchange) {
	e := Exec{
		Conn:    c.number,
		Time:    instant(s.store.now),
		Op:      x.request.Op(),
		Key:     string(x.key),
		Request: x.request,
		Status:  x.ok,
	}
	if r := s.store.live(x.key); r != nil {
		e.Quota = r.quota
	}
	s.observer(e)
}
