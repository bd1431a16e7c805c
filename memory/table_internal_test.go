package memory

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tables do what a map does, for keys of all lengths and however many have the same home.
func TestTablesAgreeWithAMap(t *testing.T) {
	for _, hashes := range []uint32{1, 3, 1 << 10, 1 << 31} {
		random := rand.New(rand.NewPCG(1, uint64(hashes)))
		ts, want := newTables(), map[id]int64{}
		for step := range int64(8000) {
			k := id{
				key: strings.Repeat("k", 20*random.IntN(7)), scale: time.Duration(1 + random.IntN(3)), kind: kind(1 + random.IntN(3)),
			}
			if random.IntN(2) == 0 {
				k.kind, k.name = k.kind|named, strings.Repeat("n", 1+63*random.IntN(2))
			}
			k.hash = -(uint32(len(k.key)) * 0x9e3779b9 % hashes) // some at the end
			tab := ts.of(&k)
			slot := tab.find(&k)
			_, ok := want[k]
			require.Equal(t, ok, slot >= 0)
			grow := step/1000%2 == 0
			switch {
			case !ok && (grow || random.IntN(4) == 0):
				tab.insert(&k).set(entry{scale: k.scale, start: step})
				want[k] = step
			case ok && (!grow || random.IntN(4) == 0):
				tab.remove(slot)
				delete(want, k)
			}
			if step%100 == 0 {
				ts.compact()
				requireSame(t, want, &ts)
			}
		}
	}
}

func requireSame(t *testing.T, want map[id]int64, ts *tables) {
	t.Helper()
	require.Equal(t, len(want), ts.len())
	for k, start := range want {
		tab := ts.of(&k)
		slot := tab.find(&k)
		require.GreaterOrEqual(t, slot, 0)
		require.Equal(t, start, tab.at(slot).entry().start)
	}
	var c cursor
	n := 0
	for tab, i := c.next(ts); tab != nil; tab, i = c.next(ts) {
		if tab.tags[i] != 0 {
			n++
		}
	}
	require.Equal(t, len(want), n)
}

func TestSlotsAreReused(t *testing.T) {
	ts := newTables()
	tab := &ts[0]
	for i := range uint32(10_000) {
		k := id{key: "k", scale: time.Minute, hash: i * 0x9e3779b9}
		tab.insert(&k).set(entry{scale: time.Minute})
		tab.remove(tab.find(&k))
	}
	require.Len(t, tab.tags, 16)
}

func TestCompactReleasesUnusedSlots(t *testing.T) {
	ts := newTables()
	tab := &ts[0]
	k := func(i uint32) *id { return &id{key: "k", scale: time.Duration(i + 1), hash: i * 0x9e3779b9} }
	for i := range uint32(10_000) {
		tab.insert(k(i)).set(entry{scale: k(i).scale, count: uint64(i)})
	}
	for i := range uint32(10_000) {
		if i%5 > 0 {
			tab.remove(tab.find(k(i)))
		}
	}
	ts.compact()
	require.Equal(t, 2000, tab.n)
	require.EqualValues(t, 2500, tab.homes)
	require.Len(t, tab.tags, 2500+2500/16+8)
	require.Len(t, tab.records, 64*len(tab.tags))
	for i := range uint32(10_000) {
		slot := tab.find(k(i))
		require.Equal(t, i%5 == 0, slot >= 0)
		require.True(t, slot < 0 || tab.at(slot).entry().count == uint64(i))
	}
}

// A cursor visits all records that exist from its start to its end, although others are
// inserted between its steps and the table grows.
func TestCursorVisitsAllRecordsOfAGrowingTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ts, stay := newTables(), map[uint64]bool{}
	insert := func(n uint64) {
		ts[0].insert(&id{key: "k", scale: time.Duration(n + 1), hash: random.Uint32()}).set(entry{scale: time.Duration(n + 1), count: n})
	}
	for n := range uint64(1000) {
		insert(n)
		stay[n] = true
	}
	var c cursor
	steps := uint64(0)
	for tab, i := c.next(&ts); tab != nil; tab, i = c.next(&ts) {
		if tab.tags[i] != 0 {
			delete(stay, tab.at(i).entry().count)
		}
		if steps++; steps < 3000 {
			insert(1000 + steps)
		}
	}
	require.Empty(t, stay)
	require.Greater(t, steps, uint64(3000))
}
