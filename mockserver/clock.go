package mockserver

import (
	"sync/atomic"
	"time"
)

// Epoch is where a virtual clock starts.
var Epoch = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

// clock returns the time in nanoseconds since 1970.
type clock struct {
	virtual bool
	start   time.Time     // of a real clock, whose monotonic reading ignores changes of the wall clock
	moved   atomic.Uint64 // by how much a virtual clock was advanced, in ns
}

func (c *clock) now() uint64 {
	if c.virtual {
		return uint64(Epoch.UnixNano()) + c.moved.Load()
	}
	return uint64(c.start.UnixNano()) + uint64(time.Since(c.start))
}

// timeOf converts nanoseconds since 1970.
func timeOf(ns uint64) time.Time {
	const second = uint64(time.Second)
	return time.Unix(int64(ns/second), int64(ns%second)).UTC()
}

// Now returns the server's time, in UTC.
func (s *Server) Now() time.Time { return timeOf(s.clock.now()) }

// Advance moves a virtual clock forward. Records expire on the way. It panics if the server has
// the real clock, or if d is negative.
//
// Limits go by the clock of the process: test them in a bubble of testing/synctest, on a server with the real clock.
func (s *Server) Advance(d time.Duration) {
	if !s.clock.virtual {
		panic("mockserver: Advance needs WithVirtualClock")
	}
	if d < 0 {
		panic("mockserver: Advance can't turn the clock back")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.moved.Add(uint64(d))
	s.store.catchUp(s.clock.now())
}
