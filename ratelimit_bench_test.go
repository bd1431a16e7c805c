package throttr_test

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// BenchmarkWhatDoesAHitCost compares a hit with the two requests that it makes at least, sent
// as a batch by the same client to the same server over TCP.
func BenchmarkWhatDoesAHitCost(b *testing.B) {
	const limit = 1 << 40
	srv := mockserver.RunT(b, mockserver.WithValueSize(8))
	client := testkit.Connect[uint64](b, srv, throttr.Config{})
	limiter := throttr.NewRateLimit(client.Backend())
	hit := func(b *testing.B, key string) {
		if res, err := limiter.Hit(b.Context(), key, time.Hour, limit); err != nil || !res.Allowed {
			b.Errorf("%v, %v", res, err)
		}
	}
	ok, err := client.Insert(b.Context(), "raw", 0, codec.TTL[uint64]{Amount: 1, Unit: codec.Hours})
	require.NoError(b, err)
	require.True(b, ok)
	raw := func(b *testing.B, batch *throttr.Batch[uint64]) {
		batch.Reset()
		batch.Update("raw", codec.Quota, codec.Increase, 1)
		r := batch.Query("raw")
		if err := client.Do(b.Context(), batch); err != nil {
			b.Error(err)
		}
		if _, ok, err := r.Counter(); !ok || err != nil {
			b.Error(ok, err)
		}
	}
	b.Run("one caller/raw batch", func(b *testing.B) {
		b.ReportAllocs()
		var batch throttr.Batch[uint64]
		for b.Loop() {
			raw(b, &batch)
		}
	})
	b.Run("one caller/hit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hit(b, "one")
		}
	})
	b.Run("many callers/raw batch", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(128)
		b.RunParallel(func(pb *testing.PB) {
			var batch throttr.Batch[uint64]
			for pb.Next() {
				raw(b, &batch)
			}
		})
	})
	b.Run("many callers/hit one key", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(128)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				hit(b, "one")
			}
		})
	})
	b.Run("many callers/hit a key each", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(128)
		var callers atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			key := strconv.FormatInt(callers.Add(1), 10)
			for pb.Next() {
				hit(b, key)
			}
		})
	})
}

// BenchmarkWhatDoesADenialCost hits a window that the client knows to be full.
func BenchmarkWhatDoesADenialCost(b *testing.B) {
	srv := mockserver.RunT(b)
	limiter := throttr.NewRateLimit(testkit.Connect[uint16](b, srv, throttr.Config{}).Backend())
	for range 3 {
		limiter.Hit(b.Context(), "full", time.Hour, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		if res, err := limiter.Hit(b.Context(), "full", time.Hour, 1); err != nil || res.Allowed {
			b.Fatal(res, err)
		}
	}
}

// BenchmarkWhatDoesAWindowCost opens a window with each hit.
func BenchmarkWhatDoesAWindowCost(b *testing.B) {
	srv := mockserver.RunT(b)
	limiter := throttr.NewRateLimit(testkit.Connect[uint16](b, srv, throttr.Config{}).Backend(throttr.WithMaxWindows(1 << 24)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := limiter.Hit(b.Context(), strconv.Itoa(i), time.Hour, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWhatDoesParkingCost compares windows that are opened, and hits on a known window, on
// a server that is not parked with those on a server that is. Each request takes the server 3 µs.
func BenchmarkWhatDoesParkingCost(b *testing.B) {
	for _, what := range []string{"hit", "window opened"} {
		for _, callers := range []int{1, 32} {
			for _, parking := range []throttr.Parking{throttr.ParkingNever, throttr.ParkingAlways} {
				b.Run(fmt.Sprintf("%s/%d callers/parking %v", what, callers, parking), func(b *testing.B) {
					benchmarkParking(b, parking, callers, what == "hit")
				})
			}
		}
	}
}

func benchmarkParking(b *testing.B, parking throttr.Parking, callers int, oneKey bool) {
	srv := mockserver.RunT(b, mockserver.WithValueSize(8), mockserver.WithServiceTime(3*time.Microsecond))
	limiter := throttr.NewRateLimit(testkit.Connect[uint64](b, srv, throttr.Config{Parking: parking}).Backend())
	var n atomic.Int64
	hit := func() {
		key := "k"
		if !oneKey {
			key = strconv.FormatInt(n.Add(1), 10)
		}
		if _, err := limiter.Hit(b.Context(), key, time.Hour, 1<<40); err != nil {
			b.Error(err)
		}
	}
	requests := func() (n int) {
		for _, op := range []codec.Op{codec.OpInsert, codec.OpQuery, codec.OpUpdate} {
			n += srv.Requests(op)
		}
		return n
	}
	hit()
	before := requests()
	b.ReportAllocs()
	if callers == 1 {
		for b.Loop() {
			hit()
		}
	} else {
		b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				hit()
			}
		})
	}
	b.ReportMetric(float64(requests()-before)/float64(b.N), "requests/op")
}
