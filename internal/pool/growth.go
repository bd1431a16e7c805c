package pool

import (
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// growthThreshold is the number of calls per connection that make another connection useful.
// While a server executes the requests of one connection, the client writes those of the
// next. But the more connections there are, the fewer requests leave in one write.
const growthThreshold = 48

// pick returns the connection with the least load, nil if there is none, and whether another
// connection would be useful.
func (s *shared[T]) pick() (c *conn.Conn[T], grow bool) {
	conns := *s.conns.Load()
	c, load := leastLoaded(conns)
	return c, c != nil && s.shouldGrow(len(conns), load)
}

// leastLoaded returns the connection with the least load, nil if there is none, and the load.
func leastLoaded[T codec.Value](conns []*conn.Conn[T]) (best *conn.Conn[T], least conn.Load) {
	for _, c := range conns {
		if load := c.Load(); best == nil || load < least {
			best, least = c, load
		}
	}
	return best, least
}

// shouldGrow reports whether another connection beside the n existing ones would be useful:
// there may be another one, and even the least loaded has many calls to do or is about to
// reach its limit of requests in flight.
func (s *shared[T]) shouldGrow(n int, least conn.Load) bool {
	return n < s.pool.o.MaxConns &&
		(least.Calls() >= n*growthThreshold || least.Requests() >= (s.pool.o.MaxInFlight+1)/2)
}
