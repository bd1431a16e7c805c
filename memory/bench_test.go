package memory_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
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

// What does a hit cost if all goroutines hit the same key?
func BenchmarkHitOneKeyParallel(b *testing.B) {
	m := newBench(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			hit(b, m, "user:42", time.Hour)
		}
	})
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

// How much longer do hits take while a cleaning removes a million windows? The times include
// a reading of the clock.
func BenchmarkHitWhileCleaning(b *testing.B) {
	const over, live = 1_000_000, 10_000
	m := newBench(b, memory.WithMaxKeys(2*over), memory.WithCleanPeriod(math.MaxInt64))
	took := make([]time.Duration, 0, 10_000_000)
	// p99 returns the 99th percentile of the times of hits on live keys until stop.
	p99 := func(stop <-chan struct{}) time.Duration {
		took = took[:0]
		for {
			select {
			case <-stop:
				slices.Sort(took)
				return took[len(took)*99/100]
			default:
			}
			k := key(over + rand.IntN(live))
			begun := time.Now()
			hit(b, m, string(k[:]), time.Hour)
			if took = append(took, time.Since(begun)); len(took) == cap(took) {
				b.Fatal("the cleaning takes too long")
			}
		}
	}
	var without, with time.Duration
	rounds := 0
	for b.Loop() {
		for i := range over {
			k := key(i)
			hit(b, m, string(k[:]), window.MinScale)
		}
		time.Sleep(window.MinScale)
		timer := make(chan struct{})
		time.AfterFunc(100*time.Millisecond, func() { close(timer) })
		without += p99(timer)
		cleaned := make(chan struct{})
		go func() {
			defer close(cleaned)
			if n := m.Clean(); n < over {
				b.Errorf("%d are removed", n)
			}
		}()
		with += p99(cleaned)
		rounds++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(without.Nanoseconds())/float64(rounds), "p99-ns")
	b.ReportMetric(float64(with.Nanoseconds())/float64(rounds), "p99-ns-cleaning")
	b.ReportMetric(float64(with)/float64(without), "ratio")
}

// What does a Get cost?
func BenchmarkGet(b *testing.B) {
	m := newBench(b)
	hit(b, m, "user:42", time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Peek(context.Background(), "user:42", limitOf(window.FixedWindow, time.Hour, 10), 0); err != nil {
			b.Error(err)
		}
	}
}

// What does a key's first hit cost?
func BenchmarkHitFirst(b *testing.B) {
	m := newBench(b, memory.WithMaxKeys(1<<30))
	b.ReportAllocs()
	fill(b, m, b.N)
}

// What does the first hit after a window's end cost?
func BenchmarkHitAfterEnd(b *testing.B) {
	now := time.Now()
	m := newBench(b, memory.WithClock(func() time.Time { return now }))
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Hour)
		hit(b, m, "user:42", time.Hour)
	}
}

// What does a new key cost if there is no room: what can an attacker who makes up keys do?
func BenchmarkNewKeyWhenFull(b *testing.B) {
	for name, o := range map[string]memory.Overflow{"share": memory.Share, "evict": memory.Evict} {
		b.Run(name, func(b *testing.B) {
			m := newBench(b, memory.WithOverflow(o), memory.WithMaxKeys(100_000))
			for i := range 120_000 {
				k := key(i)
				_, _ = m.Hit(context.Background(), string(k[:]), limitOf(window.FixedWindow, time.Hour, 100), 1)
			}
			var k [20]byte
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				n++
				_, _ = m.Hit(context.Background(), string(strconv.AppendUint(k[:0], n, 36)), limitOf(window.FixedWindow, time.Hour, 100), 1)
			}
		})
	}
}

// How long does a cleaning take that finds nothing?
func BenchmarkCleanMillionKeys(b *testing.B) {
	m := newBench(b, memory.WithMaxKeys(2_000_000))
	fill(b, m, 1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		m.Clean()
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// How much longer does a take take than a hit, and one of three windows? Each is the fastest of many
// short runs, one after the other, so that other programs hardly matter.
func BenchmarkTake(b *testing.B) {
	m := newBench(b)
	limiter := throttr.NewRateLimit(m)
	ctx := context.Background()
	var windows [3]window.Window
	three := []throttr.Take{
		limitOf(window.FixedWindow, time.Hour, math.MaxInt64-1).For("user:42", 1),
		limitOf(window.FixedWindow, time.Hour, math.MaxInt64-1).For("team:7", 1),
		limitOf(window.FixedWindow, time.Hour, math.MaxInt64-1).For("everybody", 1),
	}
	calls := []func() error{
		func() error { _, err := limiter.Hit(ctx, "user:42", time.Hour, math.MaxInt64-1); return err },
		func() error {
			_, err := limiter.Take(ctx, "user:42", limitOf(window.FixedWindow, time.Hour, math.MaxInt64-1), 1)
			return err
		},
		func() error { _, _, err := limiter.TakeAll(ctx, three...); return err },
		func() error {
			_, err := m.Hit(ctx, "user:42", limitOf(window.FixedWindow, time.Hour, 100), 1)
			return err
		},
		func() error { _, err := m.TakeAll(ctx, three, windows[:]); return err },
		func() error { _, err := limiter.Hit(ctx, "user:42", time.Hour, 0); return err },
		func() error {
			_, err := limiter.Take(ctx, "user:42", limitOf(window.FixedWindow, time.Hour, 1), 1)
			return err
		},
	}
	const runs = 200
	fastest := make([]time.Duration, len(calls))
	for b.Loop() {
		for i, call := range calls {
			begun := time.Now()
			for range runs {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
			if took := time.Since(begun); fastest[i] == 0 || took < fastest[i] {
				fastest[i] = took
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(fastest[0])/runs, "hit-ns")
	b.ReportMetric(float64(fastest[1])/float64(fastest[0]), "take/hit")
	b.ReportMetric(float64(fastest[2])/float64(fastest[0]), "three/hit")
	b.ReportMetric(float64(fastest[4])/float64(fastest[3]), "backend-three/hit")
	b.ReportMetric(float64(fastest[6])/float64(fastest[5]), "refused-take/denied-hit")
}

// Takes of up to four windows do not allocate, if the caller does not keep the results.
func TestTakeDoesNotAllocate(t *testing.T) {
	m := memory.New()
	defer m.Close()
	limiter := throttr.NewRateLimit(m)
	for name, limit := range map[string]uint64{"granted": math.MaxInt64 - 1, "refused": 1} {
		limits := make([]throttr.Take, 4)
		for i := range limits {
			limits[i] = limitOf(window.FixedWindow, time.Hour, limit).For(string(rune('a'+i)), 1)
		}
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := limiter.Take(t.Context(), "user:42", limitOf(window.FixedWindow, time.Hour, limit), 1); err != nil {
				t.Error(err)
			}
			if ok, results, err := limiter.TakeAll(t.Context(), limits...); err != nil || !ok && results[0].Allowed {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("takes that are %s make %v allocations", name, n)
		}
	}
}
