package memory

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// A table does what a map does, for keys and names of all lengths.
func TestTableAgreesWithAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := New(WithMaxKeys(1000))
	defer b.Close()
	type limit struct {
		key, name string
		scale     time.Duration
		algorithm window.Algorithm
	}
	s, want := &b.shards[0], map[limit]int64{}
	for step := range int64(30_000) {
		l := limit{
			strings.Repeat("k", random.IntN(20)) + strings.Repeat("l", random.IntN(3)*random.IntN(9)), strings.Repeat("n", max(0, random.IntN(128)-63)),
			time.Duration(1 + random.IntN(3)), window.Algorithm(1 + random.IntN(3)),
		}
		var k windowID
		b.locate(l.key, l.algorithm, l.scale, l.name, &k)
		r, grow := s.find(&k), step/5000%2 == 0
		_, ok := want[l]
		require.Equal(t, ok, r != nil)
		switch {
		case !ok && (grow || random.IntN(4) == 0):
			s.reserve(b, 1, k.textLen())
			r = s.insert(&k)
			require.True(t, r.state().scale == l.scale && r.count == 0)
			r.set(state{start: step})
			want[l] = step
			key, name := s.table.Load().keyOf(r)
			require.Equal(t, []string{l.key, l.name}, []string{key, name})
		case ok && (!grow || random.IntN(4) == 0):
			s.drop(r)
			delete(want, l)
		}
		if step%1000 != 0 {
			continue
		}
		old := s.table.Load()
		if s.compact(b); s.table.Load() != old {
			old.all(0, len(old.records), func(*record) bool {
				require.Fail(t, "calls that have found a record in the old table would use it")
				return false
			})
		}
		require.Equal(t, len(want), s.windows)
		require.LessOrEqual(t, len(s.table.Load().records), 4*len(want)+groupSize)
		for l, start := range want {
			var k windowID
			b.locate(l.key, l.algorithm, l.scale, l.name, &k)
			require.Equal(t, start, s.find(&k).start)
		}
		n := 0
		s.all(func(*record) bool { n++; return true })
		require.Equal(t, len(want), n)
	}
}

// A key that returns has its cell again, and cells of others are used again in another table.
func TestSlotsAreReused(t *testing.T) {
	b := New()
	defer b.Close()
	s := &b.shards[0]
	for i := range 10_000 {
		var k windowID
		b.locate(fmt.Sprint("key", i/2), window.FixedWindow, time.Minute, "", &k)
		s.reserve(b, 1, 0)
		r := s.insert(&k)
		r.count = 1
		s.drop(r)
	}
	require.LessOrEqual(t, len(s.table.Load().records), 3*groupSize)
	require.Zero(t, s.windows)
	s.compact(b)
	require.Same(t, noTable, s.table.Load())
}

// A table is read while records are added to it and removed from it, and while it is replaced.
func TestTableIsReadWithoutALock(t *testing.T) {
	b := New(WithMaxKeys(10_000))
	defer b.Close()
	l := window.Limit{Max: 1 << 40, Scale: time.Hour, Algorithm: window.FixedWindow}
	var readers, writers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for n := uint64(0); ; n++ {
				select {
				case <-done:
					w, err := b.Peek(t.Context(), "stays", l, 0)
					require.NoError(t, err)
					require.GreaterOrEqual(t, w.Count, n)
					return
				default:
					_, err := Decide(b, t.Context(), true, "stays", l, 1)
					require.NoError(t, err)
				}
			}
		})
	}
	for i := range 2 {
		writers.Go(func() {
			for n := range 3000 {
				key := strings.Repeat("k", n%30) + fmt.Sprint(i, n)
				_, err := Decide(b, t.Context(), true, key, l, 1)
				require.NoError(t, err)
				if n%3 > 0 {
					_, err := b.Delete(t.Context(), key)
					require.NoError(t, err)
				}
				if n%500 == 0 {
					b.Clean()
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

// A call that has found a record before it was removed begins anew.
func TestRecordThatWasRemovedCountsNothing(t *testing.T) {
	b := New()
	defer b.Close()
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow, window.TokenBucket, window.SlidingWindow, window.SlidingLog} {
		l := LimitOf(a, time.Hour, 100)
		for range 3 {
			_, err := Decide(b, t.Context(), false, "k", l, 1)
			require.NoError(t, err)
		}
		_, err := b.Delete(t.Context(), "k")
		require.NoError(t, err)
		w, err := Decide(b, t.Context(), false, "k", l, 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, w.Count, "%v", a)
	}
}

// Short keys that differ in a few bits only have shards, groups and tags as different as random ones.
func TestHashesOfSimilarShortKeysDiffer(t *testing.T) {
	const keys = 1 << 15
	for name, key := range map[string]func(i int) string{
		"numbers": strconv.Itoa,
		"users":   func(i int) string { return fmt.Sprintf("user:%d", i) },
		"digits":  func(i int) string { return fmt.Sprintf("key:%012d", i) },
		"first":   func(i int) string { return string([]byte{byte(i), byte(i >> 8), 15: 0}) },
		"middle":  func(i int) string { return string([]byte{7: byte(i), byte(i >> 8), 15: 0}) },
		"last":    func(i int) string { return string([]byte{14: byte(i), byte(i >> 8)}) },
	} {
		b := New()
		seen, equal := map[[3]uint64]int{}, 0
		for i := range keys {
			h := b.hashWords(wordsOf(key(i)))
			mixed := mix(h, time.Minute, kind(window.FixedWindow))
			cell := [3]uint64{h & 255, uint64(mixed >> 28), tagOf(mixed)}
			equal += seen[cell]
			seen[cell]++
		}
		require.InDelta(t, keys*keys/2>>(8+4+7), equal, 200, "pairs of equal %s", name) // six standard deviations
		require.NoError(t, b.Close())
	}
}
