package sweep

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

const (
	// maxChunk and maxChunkBytes bound the requests that travel together, so that those of
	// other callers do not wait long behind them.
	maxChunk      = 256
	maxChunkBytes = 8000
	// requestOverhead is what the longest request of a sweep has beside the name: an UPDATE
	// of 8-byte values.
	requestOverhead = 12
	// pauseFactor is the length of the pause after a chunk, as a multiple of the time that the
	// chunk takes.
	pauseFactor = 4
	// prolongWithin is how soon after its QUERY was sent a record may be prolonged.
	prolongWithin = time.Second
)

// chunkSize returns the most requests that travel together.
func (s *Sweeper[T]) chunkSize() int { return max(1, min(maxChunk, s.o.MaxInFlight)) }

// clean looks at records and does what the Inspector decides. It does not wait for the removals that it
// starts. It ends by the deadline, or earlier if the records need sweeps more often.
func (s *Sweeper[T]) clean(ctx context.Context, n names, deadline time.Time, removals *removals, r *Result) error {
	left := len(n.all)
	begin := time.Now()
	for chunk := range n.chunks(s.chunkSize(), maxChunkBytes) {
		start := time.Now()
		if err := s.cleanChunk(ctx, chunk, removals, r); err != nil {
			return err
		}
		if left -= len(chunk); left == 0 {
			break
		}
		if r.interval > 0 && !s.o.Server.Parked() && begin.Add(r.interval/3).Before(deadline) {
			deadline = begin.Add(r.interval / 3)
		}
		chunks := (left + len(chunk) - 1) / len(chunk)
		if !pause(ctx, pauseAfter(time.Since(start), time.Until(deadline), chunks)) {
			return ctx.Err()
		}
	}
	return nil
}

// pauseAfter returns how long to pause after a chunk. Took is the time that the chunk took, and
// left is the time for the remaining chunks.
func pauseAfter(took, left time.Duration, chunks int) time.Duration {
	return max(0, min(pauseFactor*took, left/time.Duration(chunks)-took))
}

// query queries records. The call must be put back when the responses are not needed any more.
func (s *Sweeper[T]) query(ctx context.Context, chunk [][]byte) ([]conn.Response[T], *conn.Call[T], error) {
	cl := s.o.Calls.Get()
	for _, name := range chunk {
		conn.Add(cl, codec.Query{Key: name}) // names from a LIST are never too long
	}
	responses, err := s.do(ctx, cl)
	return responses, cl, err
}

// cleanChunk looks at a chunk of records and does what the Inspector decides.
func (s *Sweeper[T]) cleanChunk(ctx context.Context, chunk [][]byte, removals *removals, r *Result) error {
	now, sent := s.o.Now(), time.Now()
	responses, queries, err := s.query(ctx, chunk)
	if err != nil {
		return err
	}
	p := plan[T]{changes: s.o.Calls.Get()}
	for i, response := range responses {
		if response.OK {
			o := Observation{uint64(response.Quota), uint64(response.TTL.Amount)}
			d := s.o.Inspector.Decide(chunk[i], o, now)
			if d.Interval > 0 {
				r.evidence.ours++
			}
			s.plan(&p, chunk[i], d, r)
		}
	}
	s.o.Calls.Put(queries)
	if p.changes.Len() > 0 {
		p.changes.Stale = func() bool { return time.Since(sent) > prolongWithin }
	}
	return s.execute(ctx, &p, removals, r)
}

// plan is what a sweep does about a chunk of records.
type plan[T codec.Value] struct {
	changes *conn.Call[T] // a request for each Prolong
	targets []string      // for the Remover
}

// plan adds what was decided about a record to p.
func (s *Sweeper[T]) plan(p *plan[T], name []byte, d Decision, r *Result) {
	if d.Interval > 0 && (r.interval == 0 || d.Interval < r.interval) {
		r.interval = d.Interval
	}
	switch d.Verdict {
	case Leave:
	case Remove:
		p.targets = append(p.targets, d.Target)
	default:
		r.Kept++
		if d.Verdict == Prolong && !s.o.Server.Parked() {
			// A PATCH would shorten a window that has been opened under the name meanwhile.
			conn.Add(p.changes, codec.Update[T]{Attribute: codec.TimeToLive, Change: codec.Increase, Value: T(d.Increase), Key: name})
		}
	}
}

// execute does what was planned, and takes the call of p.
func (s *Sweeper[T]) execute(ctx context.Context, p *plan[T], removals *removals, r *Result) error {
	if s.o.DryRun {
		r.Prolonged += p.changes.Len()
		r.Removed += len(p.targets)
		s.o.Calls.Put(p.changes)
		return nil
	}
	if len(p.targets) > 0 {
		removals.start(ctx, p.targets)
	}
	if p.changes.Len() == 0 {
		s.o.Calls.Put(p.changes)
		return nil
	}
	responses, err := s.do(ctx, p.changes)
	if err != nil {
		return err
	}
	for _, response := range responses {
		if response.OK {
			r.Prolonged++
		}
	}
	s.o.Calls.Put(p.changes)
	return nil
}
