package memory_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func newBench(b *testing.B, opts ...memory.Option) *memory.Backend {
	m := memory.New(opts...)
	b.Cleanup(func() { m.Close() })
	return m
}

func keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("user:%07d", i)
	}
	return all
}

func hit(b testing.TB, m *memory.Backend, key string) {
	if _, err := m.Hit(b.Context(), key, time.Hour, 100, 1); err != nil {
		b.Error(err)
	}
}

// What does a hit cost?
func BenchmarkHitOneKey(b *testing.B) {
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned} {
		b.Run(a.String(), func(b *testing.B) {
			m := newBench(b, memory.WithAlgorithm(a))
			hit(b, m, "user:42")
			b.ReportAllocs()
			for b.Loop() {
				hit(b, m, "user:42")
			}
		})
	}
}

// What does a hit cost when everybody hits the same key?
func BenchmarkHitOneKeyParallel(b *testing.B) {
	m := newBench(b)
	hit(b, m, "user:42")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			hit(b, m, "user:42")
		}
	})
}

// What does a hit cost when there are a million keys?
func BenchmarkHitMillionKeysParallel(b *testing.B) {
	m := newBench(b, memory.WithMaxKeys(2_000_000))
	all := keys(1_000_000)
	for _, key := range all {
		hit(b, m, key)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		random := rand.New(rand.NewPCG(rand.Uint64(), 0))
		for pb.Next() {
			hit(b, m, all[random.IntN(len(all))])
		}
	})
}

// What does it cost to ask how many hits there are?
func BenchmarkGet(b *testing.B) {
	m := newBench(b)
	hit(b, m, "user:42")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Get(b.Context(), "user:42", time.Hour); err != nil {
			b.Error(err)
		}
	}
}

// What does a key's first hit cost?
func BenchmarkHitFirst(b *testing.B) {
	m := newBench(b, memory.WithMaxKeys(1<<30))
	all := keys(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for _, key := range all {
		hit(b, m, key)
	}
}

// What does the first hit after a window's end cost?
func BenchmarkHitAfterEnd(b *testing.B) {
	now := time.Now()
	m := newBench(b, memory.WithClock(func() time.Time { return now }))
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Hour)
		hit(b, m, "user:42")
	}
}

// What does a new key cost when there is no room: who invents keys, how hard can they hit?
func BenchmarkNewKeyWhenFull(b *testing.B) {
	for name, o := range map[string]memory.Overflow{"refuse": memory.Refuse, "evict": memory.Evict} {
		b.Run(name, func(b *testing.B) {
			m := newBench(b, memory.WithOverflow(o), memory.WithMaxKeys(100_000))
			for _, key := range keys(120_000) {
				_, _ = m.Hit(b.Context(), key, time.Hour, 100, 1)
			}
			var key [20]byte
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				n++
				_, _ = m.Hit(b.Context(), string(strconv.AppendUint(key[:0], n, 36)), time.Hour, 100, 1)
			}
		})
	}
}

// How long does a cleaning that finds nothing hold up hits, in all its 256 parts together?
func BenchmarkCleanMillionKeys(b *testing.B) {
	m := newBench(b, memory.WithMaxKeys(2_000_000))
	for _, key := range keys(1_000_000) {
		hit(b, m, key)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Clean()
	}
}

// How much memory does a key take, its own 12 bytes included?
func BenchmarkMemoryOfMillionKeys(b *testing.B) {
	const n = 1_000_000
	all := keys(n)
	for b.Loop() {
		before := heap()
		m := memory.New(memory.WithMaxKeys(2 * n))
		for _, key := range all {
			hit(b, m, key)
		}
		b.ReportMetric(float64(heap()-before)/n, "B/key")
		m.Close()
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
