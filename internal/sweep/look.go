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
	// requestOverhead is what a QUERY has beside the name.
	requestOverhead = 2
	// pauseFactor is the length of the pause after a chunk, as a multiple of the time that the
	// chunk takes.
	pauseFactor = 4
)

// chunkSize returns the most requests that travel together.
func (s *Sweeper) chunkSize() int { return max(1, min(maxChunk, s.o.MaxInFlight)) }

// look looks at records and returns the targets of what is to be removed, each once. It ends by the deadline, or
// earlier if the records need sweeps more often. With an error, it returns what it has found until then.
func (s *Sweeper) look(ctx context.Context, names []listed, deadline time.Time, r *Result) (targets []string, err error) {
	left := len(names)
	begin := time.Now()
	found := make(map[string]struct{})
	for chunk := range chunks(names, s.chunkSize(), maxChunkBytes) {
		start := time.Now()
		some, err := s.lookAt(ctx, chunk, r)
		if err != nil {
			return targets, err
		}
		for _, t := range some {
			if _, ok := found[t]; !ok {
				found[t] = struct{}{}
				targets = append(targets, t)
			}
		}
		if left -= len(chunk); left == 0 {
			break
		}
		if r.interval > 0 && !s.o.Server.Parked() && begin.Add(r.interval/3).Before(deadline) {
			deadline = begin.Add(r.interval / 3)
		}
		chunks := (left + len(chunk) - 1) / len(chunk)
		if !pause(ctx, pauseAfter(time.Since(start), time.Until(deadline), chunks)) {
			return targets, ctx.Err()
		}
	}
	return targets, nil
}

// pauseAfter returns how long to pause after a chunk. Took is the time that the chunk took, and
// left is the time for the remaining chunks.
func pauseAfter(took, left time.Duration, chunks int) time.Duration {
	return max(0, min(pauseFactor*took, left/time.Duration(chunks)-took))
}

// query queries records. The call must be put back when the responses are not needed any more.
func (s *Sweeper) query(ctx context.Context, chunk [][]byte) ([]conn.Response, *conn.Call, error) {
	cl := s.o.Calls.Get()
	for _, name := range chunk {
		conn.Add(cl, codec.Query{Key: name}) // names from a LIST are never too long
	}
	responses, err := s.do(ctx, cl)
	return responses, cl, err
}

// lookAt looks at a chunk of records, and returns the targets of those that are to be removed.
func (s *Sweeper) lookAt(ctx context.Context, chunk [][]byte, r *Result) (targets []string, err error) {
	responses, queries, err := s.query(ctx, chunk)
	if err != nil {
		return nil, err
	}
	for i, response := range responses {
		if !response.OK {
			continue
		}
		d := s.o.Inspect(chunk[i], response.TTL.Amount)
		if d.Interval > 0 {
			r.evidence.ours++
			if r.interval == 0 || d.Interval < r.interval {
				r.interval = d.Interval
			}
		}
		switch {
		case d.Target == "" && d.Over:
			r.Kept++
		case d.Target == "":
		case s.o.DryRun:
			r.Removed++
		default:
			targets = append(targets, d.Target)
		}
	}
	s.o.Calls.Put(queries)
	return targets, nil
}
