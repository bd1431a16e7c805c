package memory_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func newBench(b *testing.B, opts ...memory.Option) *memory.Backend {
	m := memory.New(opts...)
	b.Cleanup(func() { m.Close() })
	return m
}

// key returns a key of 16 bytes.
func key(i int) (k [16]byte) {
	copy(k[:], "user:42:")
	binary.BigEndian.PutUint64(k[8:], uint64(i))
	return k
}

func hit(tb testing.TB, m *memory.Backend, key string, scale time.Duration) {
	if _, err := m.Hit(context.Background(), key, limitOf(window.FixedWindow, scale, 100), 1); err != nil {
		tb.Error(err)
	}
}

// fill hits each of n keys once.
func fill(tb testing.TB, m *memory.Backend, n int) {
	for i := range n {
		k := key(i)
		hit(tb, m, string(k[:]), time.Hour)
	}
}

// What does a hit cost, alone and with the decision of a RateLimit?
func BenchmarkHitOneKey(b *testing.B) {
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow} {
		m := newBench(b)
		b.Run("backend/"+a.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				hit(b, m, "user:42", time.Hour)
			}
		})
		for name, limit := range map[string]uint64{"allowed": math.MaxInt64 - 1, "denied": 0} {
			b.Run("ratelimit/"+name+"/"+a.String(), func(b *testing.B) {
				limiter := throttr.NewRateLimit(m, throttr.WithAlgorithm(a))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := limiter.Hit(context.Background(), "user:42", time.Hour, limit); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
}

// What does a hit cost with many keys, and how much memory does each key take? If the keys do
// not fit into the processor's caches, a hit waits for memory once or twice: "reads" is the
// time of two reads of memory, the second of which depends on the first.
func BenchmarkHitManyKeys(b *testing.B) {
	for _, n := range []int{1000, 100_000, 10_000_000} {
		before := heap()
		m := newBench(b, memory.WithMaxKeys(2*n))
		fill(b, m, n)
		perKey := float64(heap()-before) / float64(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k := key(rand.IntN(n))
				hit(b, m, string(k[:]), time.Hour)
			}
			b.ReportMetric(perKey, "B/key")
		})
		b.Run(fmt.Sprint(n, "/parallel"), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					k := key(rand.IntN(n))
					hit(b, m, string(k[:]), time.Hour)
				}
			})
		})
		m.Close()
		b.Run(fmt.Sprint(n, "/reads"), func(b *testing.B) {
			lines := make([][8]uint64, n)
			for i := range lines {
				lines[i][0] = rand.Uint64()
			}
			at := uint64(0)
			for b.Loop() {
				at = (lines[at][0] + rand.Uint64()) % uint64(n)
				at = (lines[at][0] + 1) % uint64(n)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
