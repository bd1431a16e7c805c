package mockserver

import (
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Exec is an executed request, as [WithObserver] reports it.
type Exec struct {
	Conn    int           // the connection, numbered from 1 in the order of acceptance
	Time    time.Time     // by the server's clock
	Op      codec.Op      // the op code of the request
	Key     string        // the key that the request is about; "" if the op has none
	Request codec.Request // the request; its bytes are valid until the observer returns
	Status  bool          // the status byte of the response
	Quota   uint64        // the quota of the live counter under Key afterwards; 0 if there is none
}

// observe reports the request that x has just executed. The caller holds s.mu.
func (s *Server) observe(x *execution) {
	e := Exec{
		Conn:    x.conn.number,
		Time:    timeOf(s.store.now),
		Op:      x.op,
		Key:     string(x.key),
		Request: x.request,
		Status:  x.ok,
	}
	if r := s.store.live(x.key); r != nil {
		e.Quota = r.quota
	}
	s.observer(e)
}
