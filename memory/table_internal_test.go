package memory

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A table does what a map does, however many keys meet in a place, and whatever lengths
// they have.
func TestTableIsAMap(t *testing.T) {
	for _, hashes := range []uint32{1, 3, 1 << 10, 1 << 31} {
		random := rand.New(rand.NewPCG(1, uint64(hashes)))
		tab, want := newTable(0), map[id]int64{}
		for step := range int64(8000) {
			k := id{strings.Repeat("k", random.IntN(maxKey+1)), time.Duration(1 + random.IntN(3)), 0}
			k.hash = -(uint32(len(k.key)) * 0x9e3779b9 % hashes) // some at the end, which go on at the start
			r, place := tab.find(k)
			_, ok := want[k]
			require.Equal(t, ok, r != nil)
			grow := step/1000%2 == 0
			switch {
			case !ok && (grow || random.IntN(4) == 0):
				r = tab.insert(k)
				r.set(entry{scale: k.scale, start: step})
				want[k] = step
			case ok && (!grow || random.IntN(4) == 0):
				tab.remove(place)
				delete(want, k)
			}
			if step%100 == 0 {
				tab.compact()
				requireSame(t, want, &tab)
			}
		}
	}
}

func requireSame(t *testing.T, want map[id]int64, tab *table) {
	t.Helper()
	require.Equal(t, len(want), tab.n)
	for k, start := range want {
		r, place := tab.find(k)
		require.NotNil(t, r)
		require.Equal(t, start, r.entry().start)
		s := tab.index[place]
		require.Equal(t, place, tab.where(k.hash, ref(s)))
	}
	var c cursor
	n := 0
	for r, at := tab.next(&c); r != nil; r, at = tab.next(&c) {
		if r.scale() == 0 {
			continue
		}
		require.Equal(t, r, tab.record(slotOf(0, at)))
		n++
	}
	require.Equal(t, tab.n, n)
}

func TestRecordsAreUsedAgain(t *testing.T) {
	tab := newTable(0)
	for i := range 10_000 {
		k := id{"k", time.Minute, uint32(i)}
		tab.insert(k).set(entry{scale: time.Minute})
		_, place := tab.find(k)
		tab.remove(place)
	}
	require.Len(t, tab.index, 8)
	require.EqualValues(t, 1, tab.slabs[0].used)
}

func TestCompactGivesBackWhatIsNotInUse(t *testing.T) {
	tab := newTable(0)
	for i := range uint32(10_000) {
		tab.insert(id{"k", time.Minute, i}).set(entry{scale: time.Minute, count: uint64(i)})
	}
	for i := range uint32(10_000) {
		if i%5 > 0 {
			_, place := tab.find(id{"k", time.Minute, i})
			tab.remove(place)
		}
	}
	tab.compact()
	require.Equal(t, 2000, tab.n)
	require.EqualValues(t, 2000, tab.slabs[0].used)
	require.Len(t, tab.index, 4096)
	for i := range uint32(10_000) {
		r, _ := tab.find(id{"k", time.Minute, i})
		require.Equal(t, i%5 == 0, r != nil)
		require.True(t, r == nil || r.entry().count == uint64(i))
	}
}
