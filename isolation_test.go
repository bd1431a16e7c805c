package throttr_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// stocked starts a server with n records.
func stocked(t testing.TB, n int, opts ...mockserver.Option) *mockserver.Server {
	srv := mockserver.RunT(t, opts...)
	for i := range n {
		srv.Set("key:"+strconv.Itoa(i), 1, time.Hour)
	}
	return srv
}

func TestAListHoldsUpNobodysHits(t *testing.T) {
	const keys, callers, each = 100_000, 8, 50
	// In memory nothing is buffered between the two sides: what the loop has not taken, the
	// server has not sent.
	srv := stocked(t, keys, mockserver.WithAddr("memory", "memory:1"))
	client := connect[uint16](t, srv, over(srv, throttr.Config{MaxConns: 1}))
	limiter := throttr.NewRateLimit(client.Backend())
	seen := map[string]bool{}
	for e, err := range client.List(t.Context()) {
		require.NoError(t, err)
		if seen[e.Key] = true; len(seen)%(keys/4) != 1 {
			continue
		}
		// The list is under way, and stays where it is until all hits have been answered.
		var hits sync.WaitGroup
		for i := range callers {
			hits.Go(func() {
				for range each {
					if _, err := limiter.Hit(t.Context(), strconv.Itoa(i), time.Hour, 10_000); err != nil {
						t.Error(err)
					}
				}
			})
		}
		hits.Wait()
	}
	require.Len(t, seen, keys)
	for i := range callers {
		n, err := limiter.Get(t.Context(), strconv.Itoa(i), time.Hour)
		require.NoError(t, err)
		require.Equal(t, uint64(4*each), n)
	}
}

// How long does a request take while others list all records, over and over?
func BenchmarkARequestBesideALister(b *testing.B) {
	for _, listers := range []int{0, 1} {
		b.Run(strconv.Itoa(listers)+" listers", func(b *testing.B) {
			srv := stocked(b, 100_000)
			client := connect[uint16](b, srv, throttr.Config{})
			ctx, cancel := context.WithCancel(b.Context())
			var done sync.WaitGroup
			listed := make([]int, listers)
			for i := range listed {
				done.Go(func() {
					for ctx.Err() == nil {
						for _, err := range client.List(ctx) {
							if err == nil {
								listed[i]++
							}
						}
					}
				})
			}
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				start := time.Now()
				if _, err := client.Update(ctx, "key:1", codec.Quota, codec.Patch, 1); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			cancel()
			done.Wait()
			slices.Sort(took)
			for name, q := range map[string]int{"p50-us": 50, "p99-us": 99, "max-us": 100} {
				b.ReportMetric(float64(took[(len(took)-1)*q/100].Nanoseconds())/1000, name)
			}
			if listers > 0 {
				b.ReportMetric(float64(listed[0])/b.Elapsed().Seconds(), "entries/s")
			}
		})
	}
}

// How fast is a list, and what does an entry cost?
func BenchmarkAList(b *testing.B) {
	srv := stocked(b, 100_000)
	client := connect[uint16](b, srv, throttr.Config{})
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range client.List(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		require.Equal(b, 100_000, n)
	}
}
