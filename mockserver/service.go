package mockserver

import (
	"fmt"
	"time"
)

// WithServiceTime makes the server spend time on each request, one request at a time, as a
// real server does in its only thread. [Start] refuses more than a millisecond.
//
//   - Over a socket, the server keeps a processor busy meanwhile. It reads up to 8096 bytes
//     from a connection, and executes the requests in them before those of others.
//   - In memory, it sleeps, so that the time passes in a bubble of testing/synctest.
//
// A virtual clock does not move meanwhile. [Server.Busy] returns the sum. To delay only some responses, use
// [Server.Inject] with a [Fault] that has a Delay.
func WithServiceTime(each time.Duration) Option {
	return func(o *options) { o.costs.request = each }
}

// WithRealServiceTime makes the server as slow as a real one, on a quiet machine. The time is spent as
// that of [WithServiceTime].
//
//   - A request takes 6 µs, and 4 µs more if it is alone: each response is a system call of its own.
//     Over a Unix socket it takes 3.1 µs, and 9 µs more.
//   - INSERT and SET, also those that fail, take 3 µs longer on a server that has made no records, 35 µs after 20,000
//     records, and 140 µs from 41,000 on (H7). After a [Server.Restart] or [Server.Recompile] it is new.
//   - LIST and STATS take 5 µs for each record (H20), INFO takes 0.35 µs (H24), and so does
//     each minute.
//   - Each response that a client has left unread, see [Server.Leaked], makes every request of all
//     clients 1.7 ns slower (H16).
func WithRealServiceTime() Option {
	return func(o *options) { o.costs.real = true }
}

// Busy returns how much time the server has spent on requests, as [WithServiceTime] and
// [WithRealServiceTime] say.
func (s *Server) Busy() time.Duration {
	if s.thread == nil {
		return 0
	}
	return time.Duration(s.thread.busy.Load())
}

func (o *options) checkCosts() error {
	if o.costs.real {
		o.costs = tcpCosts
		if o.network == "unix" {
			o.costs = unixCosts
		}
	}
	if o.costs.request < 0 || o.costs.request > maxServiceTime {
		return fmt.Errorf("mockserver: service time is 0 to %v, not %v", maxServiceTime, o.costs.request)
	}
	return nil
}
