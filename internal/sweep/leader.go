package sweep

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// LeaderKey is the key of the record that makes one sweeper the leader. Its TTL says when the
// last sweep began. Its count is the number of the leader's term, which is odd until the sweep is
// complete or broken off. It is never removed.
const LeaderKey = "throttr:sweeper"

// longestInterval is less than the TTL of the leader's record.
const longestInterval = 220 * time.Second

// termTTL returns the TTL that the record begins each term with, in seconds. It is so long, as
// far as values allow, that the record does not expire if all clients stop for a while.
func (s *Sweeper) termTTL() conn.TTL {
	seconds := uint64(240)
	if s.o.Calls.Size().Bytes() > 1 {
		seconds = 18 * 60 * 60
	}
	return conn.TTL{Amount: seconds, Unit: codec.Seconds}
}

// term is what a sweeper knows of the present leader's term.
type term struct {
	exists bool
	// foreign says that the record is somebody's data. Then there is no leader, and each sweeper
	// sweeps by itself.
	foreign bool
	number  uint64
	age     time.Duration // rounded up to a second
}

// unfinished reports whether the sweep of the term has not ended: its leader is at it, has
// failed, or has died.
func (t term) unfinished() bool { return t.exists && t.number%2 != 0 }

// due returns how old the term is when the next one begins. A sweep takes half an interval. If it
// takes much longer, the leader has died.
func (t term) due(interval time.Duration) time.Duration {
	if t.unfinished() {
		return min(interval, interval*5/8+time.Second)
	}
	return interval
}

// next returns the number of the next term, and that of its end. After the largest value of the server
// comes 0.
func (t term) next(largest uint64) (number, end uint64) {
	number = t.number + 1 + t.number%2
	return number & largest, (number + 1) & largest
}

// readTerm reads the present term.
func (s *Sweeper) readTerm(ctx context.Context) (term, error) {
	cl := s.o.Calls.Get()
	conn.Add(cl, codec.Query{Key: []byte(LeaderKey)})
	responses, err := s.do(ctx, cl)
	if err != nil {
		return term{}, err
	}
	record := responses[0]
	s.o.Calls.Put(cl)
	if !s.isTerm(record) {
		return term{foreign: record.OK, age: longestInterval}, nil
	}
	age := s.termTTL().Amount - record.TTL.Amount
	return term{exists: true, number: record.Quota, age: time.Duration(age) * time.Second}, nil
}

// isTerm reports whether the response to a QUERY of LeaderKey shows a term.
func (s *Sweeper) isTerm(r conn.Response) bool {
	most := s.termTTL()
	return r.OK && r.TTL.Unit == most.Unit && r.TTL.Amount <= most.Amount
}

// beginTerm begins the term after t, and reports whether this sweeper is its leader. If several
// sweepers begin the same term, the first is the leader. The others can make the record younger, by
// the time of a request.
func (s *Sweeper) beginTerm(ctx context.Context, t term) (leader bool, err error) {
	if t.foreign {
		return true, nil
	}
	cl := s.o.Calls.Get()
	cl.SingleRead = true
	key := []byte(LeaderKey)
	number, _ := t.next(s.o.Calls.Size().Largest())
	if t.exists {
		conn.Add(cl, codec.Query{Key: key})
		cl.Update(conn.Update{Attribute: codec.TimeToLive, Change: codec.Patch, Value: s.termTTL().Amount, Key: key})
		cl.Update(conn.Update{Attribute: codec.Quota, Change: codec.Patch, Value: number, Key: key})
	} else {
		cl.Insert(conn.Insert{Key: key, Quota: number, TTL: s.termTTL()})
	}
	responses, err := s.do(ctx, cl)
	if err != nil {
		return false, err
	}
	leader = responses[0].OK && responses[0].Quota == t.number
	s.o.Calls.Put(cl)
	return leader, nil
}

// endTerm says that the sweep of the term after t has ended. If it fails, the next sweep comes
// sooner.
func (s *Sweeper) endTerm(ctx context.Context, t term) {
	if t.foreign {
		return
	}
	cl := s.o.Calls.Get()
	_, end := t.next(s.o.Calls.Size().Largest())
	cl.Update(conn.Update{Attribute: codec.Quota, Change: codec.Patch, Value: end, Key: []byte(LeaderKey)})
	if _, err := s.do(ctx, cl); err == nil {
		s.o.Calls.Put(cl)
	}
}

// do sends a call and returns its responses. They are valid until the call is put back. After an
// error the call must not be used any more.
func (s *Sweeper) do(ctx context.Context, cl *conn.Call) ([]conn.Response, error) {
	done, _, err := s.o.Server.Do(ctx, cl)
	if err == nil {
		return cl.Responses, nil
	}
	if done {
		s.o.Calls.Put(cl)
	}
	return nil, err
}
