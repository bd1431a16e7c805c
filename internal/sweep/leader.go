package sweep

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
)

// LeaderKey is the key of the record that makes one sweeper the leader. Its TTL says when the
// last sweep began. Its count is the number of the leader's term, which is odd until the sweep is
// complete. It is never removed.
const LeaderKey = "throttr:sweeper"

// longestInterval is less than the TTL of the leader's record.
const longestInterval = 220 * time.Second

// termTTL returns the TTL that the record begins each term with, in seconds. It is so long, as
// far as a T allows, that the record does not expire if all clients stop for a while.
func termTTL[T codec.Value]() codec.TTL[T] {
	seconds := uint64(240)
	if codec.Size[T]() > 1 {
		seconds = 18 * 60 * 60
	}
	return codec.TTL[T]{Amount: T(seconds), Unit: codec.Seconds}
}

// term is what a sweeper knows of the present leader's term.
type term[T codec.Value] struct {
	exists bool
	// foreign says that the record is somebody's data. Then there is no leader, and each sweeper
	// sweeps by itself.
	foreign bool
	number  T
	age     time.Duration // rounded up to a second; if foreign, the time since this sweeper's last sweep
}

// unfinished reports whether the sweep of the term is not complete: its leader is at it, has
// failed, or has died.
func (t term[T]) unfinished() bool { return t.exists && t.number%2 != 0 }

// due returns how old the term is when the next one begins. A sweep takes half an interval. If it
// takes much longer, the leader has died.
func (t term[T]) due(interval time.Duration) time.Duration {
	if t.unfinished() {
		return min(interval, interval*5/8+time.Second)
	}
	return interval
}

// next returns the number of the next term.
func (t term[T]) next() T { return t.number + 1 + t.number%2 }

// readTerm reads the present term. If another client has parked the server, it keeps it parked.
func (s *Sweeper[T]) readTerm(ctx context.Context) (term[T], error) {
	cl := s.o.Calls.Get()
	conn.Add(cl, codec.Query{Key: []byte(LeaderKey)})
	conn.Add(cl, parking.Query())
	responses, err := s.do(ctx, cl)
	if err != nil {
		return term[T]{}, err
	}
	record, parked := responses[0], responses[1]
	s.o.Calls.Put(cl)
	if parked.TTL.Amount > 0 && isParking(parked) && !s.o.Server.Parked() {
		s.o.Server.Park(ctx)
	}
	if !record.OK {
		return term[T]{age: longestInterval}, nil
	}
	if !isTerm(record) {
		return term[T]{foreign: true, age: s.sinceLast()}, nil
	}
	age := termTTL[T]().Amount - record.TTL.Amount
	return term[T]{exists: true, number: record.Quota, age: time.Duration(age) * time.Second}, nil
}

// isTerm reports whether the response to a QUERY of LeaderKey shows a term.
func isTerm[T codec.Value](r conn.Response[T]) bool {
	most := termTTL[T]()
	return r.OK && r.TTL.Unit == most.Unit && r.TTL.Amount <= most.Amount
}

// isParking reports whether the response to a QUERY of the empty key shows the record that parks the
// server.
func isParking[T codec.Value](r conn.Response[T]) bool {
	return parking.Record{Found: r.OK, Unit: r.TTL.Unit, Quota: uint64(r.Quota)}.Parks()
}

// beginTerm begins the term after t, and reports whether this sweeper is its leader. If several
// sweepers begin the same term, the first is the leader. The others can make the record younger, by
// the time of a request.
func (s *Sweeper[T]) beginTerm(ctx context.Context, t term[T]) (leader bool, err error) {
	if t.foreign {
		return true, nil
	}
	cl := s.o.Calls.Get()
	cl.Atomicity = conn.SingleRead
	key := []byte(LeaderKey)
	if t.exists {
		conn.Add(cl, codec.Query{Key: key})
		conn.Add(cl, codec.Update[T]{Attribute: codec.TimeToLive, Change: codec.Patch,
			Value: termTTL[T]().Amount, Key: key})
		conn.Add(cl, codec.Update[T]{Attribute: codec.Quota, Change: codec.Patch, Value: t.next(), Key: key})
	} else {
		conn.Add(cl, codec.Insert[T]{Key: key, Quota: t.next(), TTL: termTTL[T]()})
	}
	responses, err := s.do(ctx, cl)
	if err != nil {
		return false, err
	}
	leader = responses[0].OK && responses[0].Quota == t.number
	s.o.Calls.Put(cl)
	return leader, nil
}

// endTerm says that the sweep of the term after t is complete. If it fails, the next sweep comes
// sooner.
func (s *Sweeper[T]) endTerm(ctx context.Context, t term[T]) {
	if t.foreign {
		return
	}
	cl := s.o.Calls.Get()
	conn.Add(cl, codec.Update[T]{Attribute: codec.Quota, Change: codec.Patch, Value: t.next() + 1,
		Key: []byte(LeaderKey)})
	if _, err := s.do(ctx, cl); err == nil {
		s.o.Calls.Put(cl)
	}
}

// do sends a call and returns its responses. They are valid until the call is put back. After an
// error the call must not be used any more.
func (s *Sweeper[T]) do(ctx context.Context, cl *conn.Call[T]) ([]conn.Response[T], error) {
	done, _, err := s.o.Server.Do(ctx, cl)
	if err == nil {
		return cl.Responses, nil
	}
	if done {
		s.o.Calls.Put(cl)
	}
	return nil, err
}
