package lease

import (
	"hash/maphash"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

func TestEntriesAreFoundUntilTheyAreRemoved(t *testing.T) {
	const most = 100
	tab := newTable(most)
	var all []*entry
	for i := range 2 * most {
		key, limit := "user:"+strconv.Itoa(i/2), window.Limit{Max: uint64(i % 2), Scale: time.Second}
		made := &entry{key: key, limit: limit}
		e := tab.add(made)
		if i >= most {
			require.Nil(t, e, "there is no room")
			continue
		}
		require.Same(t, made, e)
		require.Same(t, e, tab.add(&entry{key: key, limit: limit}), "it is there already")
		all = append(all, e)
	}
	require.ElementsMatch(t, all, tab.all())
	for i, e := range all {
		require.Same(t, e, tab.find(e.key, &e.limit))
		require.Contains(t, tab.ofKey(e.key), e)
		for _, other := range []window.Limit{
			{Max: e.limit.Max, Scale: time.Minute}, {Max: e.limit.Max, Scale: time.Second, Name: "n"},
			{Max: e.limit.Max, Scale: time.Second, Algorithm: window.AlignedWindow}, {Max: 7, Scale: time.Second},
		} {
			require.Nil(t, tab.find(e.key, &other))
		}
		tab.remove(e)
		tab.remove(e)
		require.Nil(t, tab.find(e.key, &e.limit))
		require.Equal(t, most-i-1, tab.n)
	}
	require.Empty(t, tab.entries)
	require.Empty(t, tab.close())
	require.Nil(t, tab.add(&entry{key: "k"}))
}

func TestAKeyIsHotAfterSomeHitsWithinTheAge(t *testing.T) {
	h := heat{seed: maphash.MakeSeed()}
	const age = time.Second
	hits := func(n int, from, pause time.Duration) (hot int) {
		for i := range n {
			if h.hit("k", from+time.Duration(i)*pause, age) {
				hot++
			}
		}
		return hot
	}
	require.Equal(t, 2, hits(2*hotHits, 0, 1))
	require.Zero(t, hits(hotHits-1, 10*age, 1))
	require.Zero(t, hits(10*hotHits, 20*age, age/(hotHits/2)))

	// Of two keys with one counter, the one that is hit more is counted.
	hits(hotHits/2, 60*age, 1)
	slot := func(key string) uint64 { return maphash.String(h.seed, key) % counters }
	other := "0"
	for i := 1; slot(other) != slot("k"); i++ {
		other = strconv.Itoa(i)
	}
	for i := range hotHits/2 + hotHits {
		require.Equal(t, i == hotHits/2+hotHits-1, h.hit(other, 60*age, age), i)
	}
}
