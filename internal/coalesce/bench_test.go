package coalesce_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/coalesce"
)

// remote is a window that another goroutine counts, as a server does.
type remote struct {
	sums, counts chan uint64
	requests     atomic.Int64
}

func newRemote(b *testing.B) *remote {
	r := &remote{sums: make(chan uint64), counts: make(chan uint64)}
	go func() {
		count := uint64(0)
		for sum := range r.sums {
			count += sum
			r.counts <- count
		}
	}()
	b.Cleanup(func() { close(r.sums) })
	return r
}

func (r *remote) Admit(coalesce.Batch, coalesce.Hit) (coalesce.Verdict, coalesce.Result, error) {
	return coalesce.Join, coalesce.Result{}, nil
}

func (r *remote) Refresh(context.Context) (coalesce.Plan, error) { return nil, nil }

func (r *remote) Count(_ context.Context, b coalesce.Batch) coalesce.Outcome {
	r.requests.Add(1)
	r.sums <- b.Sum
	return coalesce.Outcome{Counted: true, Result: coalesce.Result{Count: <-r.counts}}
}

func (r *remote) Refuse(uint64) {}

func (r *remote) GiveBack(context.Context, uint64) {}

// BenchmarkHitsPerRequest has 64 callers for each processor.
func BenchmarkHitsPerRequest(b *testing.B) {
	g := coalesce.NewGroup(coalesce.Options{Now: time.Now, MaxQueued: 1 << 16})
	defer g.Close()
	r := newRemote(b)
	c := g.New(r)
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := c.Do(b.Context(), coalesce.Hit{Limit: 1, Increment: 1}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/float64(r.requests.Load()), "hits/request")
}
