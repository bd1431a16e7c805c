package mockserver

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// maxServiceTime is the longest of [WithServiceTime].
const maxServiceTime = time.Millisecond

// WithServiceTime makes the server spend time on each request, one request at a time, as a
// real server does in its only thread. [Start] refuses more than a millisecond.
//
//   - Over a socket, the server keeps a processor busy meanwhile. It reads up to 8096 bytes
//     from a connection, and executes the requests in them before those of others.
//   - In memory, it sleeps, so that the time passes in a bubble of testing/synctest.
//
// A virtual clock does not move meanwhile. To delay only some responses, use
// [Server.Inject] with a [Fault] that has a Delay.
func WithServiceTime(each time.Duration) Option {
	return func(o *options) { o.costs.request = each }
}

// WithRealServiceTime makes the server as slow as a real one, on a quiet machine. The time is spent as
// that of [WithServiceTime], which has no effect beside it.
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

// costs says how long requests take.
type costs struct {
	request time.Duration // each request
	turn    time.Duration // each turn: the requests that were read together, however many they are
	real    bool          // what depends on the records takes longer
}

// What depends on the records that a real server has.
const (
	listTime   = 5 * time.Microsecond  // a LIST or STATS takes it for each record (H20)
	scanTime   = 350 * time.Nanosecond // an INFO takes it for each record, and so does each minute (H24)
	leakTenths = 17                    // every request takes so many tenths of a ns for each unread response (H16)
)

// oldAge is the number of records that a server has made when creation is at its slowest.
const oldAge = 41_000

// creationTime returns how much longer than other requests an INSERT or SET takes on a real server that has made a
// number of records, whether it makes another one or fails (H7). Between the figures that were measured it grows
// evenly.
func creationTime(made int) time.Duration {
	const young, fresh, slow, slowest = 20_000, 3 * time.Microsecond, 35 * time.Microsecond, 140 * time.Microsecond
	switch {
	case made < young:
		return fresh + (slow-fresh)*time.Duration(made)/young
	case made < oldAge:
		return slow + (slowest-slow)*time.Duration(made-young)/(oldAge-young)
	default:
		return slowest
	}
}

// complete sets the costs of a real server on a network, or returns an error if those that were given are out of range.
// On a fresh real server, on a quiet machine, a request takes 10 µs if it is alone, and 6 µs as one of many; over a
// Unix socket 12 and 3.1 µs. Most of it is the sending of the response, each with a system call of its own.
func (c *costs) complete(network string) error {
	switch {
	case c.real && network == "unix":
		*c = costs{request: 3100 * time.Nanosecond, turn: 9 * time.Microsecond, real: true}
	case c.real:
		*c = costs{request: 6 * time.Microsecond, turn: 4 * time.Microsecond, real: true}
	case c.request < 0 || c.request > maxServiceTime:
		return fmt.Errorf("mockserver: service time is 0 to %v, not %v", maxServiceTime, c.request)
	}
	return nil
}

// cost returns how long a request takes. made is how many records the server had made before it. The caller holds s.mu.
func (s *Server) cost(op codec.Op, made int) time.Duration {
	d := s.costs.request
	if !s.costs.real {
		return d
	}
	d += time.Duration(s.leaked*leakTenths/10) * time.Nanosecond
	records := len(s.store.records)
	switch op {
	case codec.OpInsert, codec.OpSet:
		d += creationTime(made)
	case codec.OpList, codec.OpStats:
		d += time.Duration(records) * listTime
	case codec.OpInfo:
		d += time.Duration(records) * scanTime
	}
	return d
}

// scan returns how long the server looks through all records, which it does once a minute (H24). The caller holds s.mu.
func (s *Server) scan() time.Duration {
	if !s.costs.real || s.scanned == s.store.minute {
		return 0
	}
	s.scanned = s.store.minute
	return time.Duration(len(s.store.records)) * scanTime
}

// thread is the only thread of a real server: it executes a buffer of requests of one connection at a time.
type thread struct {
	busy  chan struct{} // holds a token while a connection has the thread
	spins bool          // as a real server does: so short a time can't be slept outside of a bubble of testing/synctest
	began time.Time     // when the connection got it that has it
	owed  time.Duration // by that connection
}

// acquire waits for the thread.
func (t *thread) acquire() {
	t.busy <- struct{}{}
	t.began = time.Now()
}

// release spends what the connection owes, and frees the thread.
func (t *thread) release() {
	if t.spins {
		for time.Since(t.began) < t.owed {
		}
	} else {
		time.Sleep(t.owed)
	}
	t.owed = 0
	<-t.busy
}
