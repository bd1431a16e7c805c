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
	// minChunk requests travel together, however few are in flight otherwise: if there were fewer, sweeps would take
	// longer than records can wait.
	minChunk = 16
	// requestOverhead is what the longest request of a sweep has beside the name: an UPDATE
	// of 8-byte values.
	requestOverhead = 12
	// pauseFactor is the length of the pause after a chunk, as a multiple of the time that the
	// chunk takes.
	pauseFactor = 4
)

// chunkOf returns the most requests that travel together. If they took much of a queue, those of a busy
// client would leave no room for them.
func chunkOf(o Options) int {
	most := maxChunk
	if o.MaxInFlight > 0 {
		most = min(most, max(minChunk, o.MaxInFlight))
	}
	if o.MaxQueued > 0 {
		most = min(most, max(1, o.MaxQueued/8))
	}
	return most
}

// clean looks at records and does what is decided about them. It does not wait for the removals that it
// starts. It hurries to end by the deadline, or earlier if the records need sweeps more often. If it takes so long
// that the next sweep is due, the leader breaks it off: the next one begins again with those that expire first. A
// sweep that may find that the server can be parked goes on.
func (s *Sweeper) clean(ctx context.Context, names []listed, deadline time.Time, removals *removals, r *Result) error {
	begin := time.Now()
	for len(names) > 0 {
		start := time.Now()
		chunk, others := cut(names, s.chunk, maxChunkBytes)
		names = others
		if err := s.cleanChunk(ctx, chunk, removals, r); err != nil {
			return err
		}
		if len(names) == 0 {
			break
		}
		if r.interval > 0 && !s.o.Server.Parked() {
			if mayPark := r.evidence.wanted && r.Foreign == 0; r.leads && !mayPark && time.Since(begin) >= r.interval {
				r.brokenOff = true
				break
			}
			if begin.Add(r.interval / 3).Before(deadline) {
				deadline = begin.Add(r.interval / 3)
			}
		}
		chunks := (len(names) + len(chunk) - 1) / len(chunk)
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
func (s *Sweeper) query(ctx context.Context, chunk []listed) ([]conn.Response, *conn.Call, error) {
	cl := s.o.Calls.Get()
	for _, l := range chunk {
		conn.Add(cl, codec.Query{Key: []byte(l.name)}) // names from a LIST are never too long
	}
	responses, err := s.do(ctx, cl)
	return responses, cl, err
}

// cleanChunk looks at a chunk of records and does what is decided about them.
func (s *Sweeper) cleanChunk(ctx context.Context, chunk []listed, removals *removals, r *Result) error {
	responses, queries, err := s.query(ctx, chunk)
	if err != nil {
		return err
	}
	var targets []string
	for i, response := range responses {
		if !response.OK {
			continue
		}
		d := s.o.Inspect([]byte(chunk[i].name), response.TTL.Amount)
		if d.Interval > 0 {
			r.evidence.ours++
			if r.interval == 0 || d.Interval < r.interval {
				r.interval = d.Interval
			}
		}
		switch {
		case d.Target == "":
			if d.Over {
				r.Kept++
			}
		case s.o.DryRun:
			r.Removed++
		case !removals.given[d.Target]:
			removals.given[d.Target] = true
			targets = append(targets, d.Target)
		}
	}
	s.o.Calls.Put(queries)
	if len(targets) > 0 {
		removals.start(ctx, targets)
	}
	return nil
}
