package mockserver

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/servicetime"
)

// WithServiceTime makes the server spend time on each request, one request at a time, as a
// real server does in its only thread; a real server takes 2.7 µs. [Start] refuses more than
// a millisecond.
//
//   - Over a socket, the server keeps a processor busy meanwhile. It reads up to 8096 bytes
//     from a connection, and executes the requests in them before those of others.
//   - In memory, it sleeps, so that the time passes in a bubble of testing/synctest.
//   - With [WithVirtualClock], the server is not slower: the clock does not move by itself.
//
// In each case [Server.Busy] returns the sum. To delay only some responses, use
// [Server.Inject] with a [Fault] that has a Delay.
func WithServiceTime(each time.Duration) Option {
	return func(o *options) { o.costs.Request = each }
}

// WithSlowCreation makes INSERT and SET, also those that fail, as slow as on a real server
// that has made a number of records before (H7): 3 µs at first, 35 µs after 20,000 records, and
// 140 µs from 41,000 on. Records that the server makes count from then on; after a
// [Server.Restart] or [Server.Recompile] it is new. The time is spent as that of
// [WithServiceTime]. [Start] refuses a negative number.
func WithSlowCreation(made int) Option {
	return func(o *options) { o.costs.Creation, o.made = true, made }
}

// Busy returns how much time the server has spent on requests, as [WithServiceTime] and
// [WithSlowCreation] say.
func (s *Server) Busy() time.Duration { return s.thread.Busy() }

// thread returns the thread that spends the time of requests; nil if they take none.
func (o *options) thread() *servicetime.Thread {
	switch {
	case o.costs == servicetime.Costs{}:
		return nil
	case o.virtual:
		return servicetime.New(servicetime.Add)
	case o.network == "memory":
		return servicetime.New(servicetime.Sleep)
	default:
		return servicetime.New(servicetime.Spin)
	}
}

func (o *options) checkCosts() error {
	if err := o.costs.Check(); err != nil {
		return fmt.Errorf("mockserver: %w", err)
	}
	if o.made < 0 {
		return fmt.Errorf("mockserver: %d records made before are less than 0", o.made)
	}
	return nil
}
