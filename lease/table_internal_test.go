package lease

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// TestEntriesAreFoundUntilTheyAreRemoved adds more entries than there are places to find them fast.
func TestEntriesAreFoundUntilTheyAreRemoved(t *testing.T) {
	tab := newTable(4 * recents)
	find := func(key string, l window.Limit) *entry {
		if e := tab.lookUp(key, &l); e != nil {
			return e
		}
		return tab.find(tab.hash(key, &l), key, &l)
	}
	var all []*entry
	fast := 0
	for i := range 2 * recents {
		key, limit := "user:"+strconv.Itoa(i/2), window.Limit{Max: uint64(i % 2), Scale: time.Second}
		e := &entry{hash: tab.hash(key, &limit), key: key, limit: limit}
		if added, first := tab.add(e); added { // unless all ways of the hash have other entries
			require.Equal(t, len(all) == 0, first)
			all = append(all, e)
		}
	}
	require.Greater(t, len(all), recents)
	for _, e := range all {
		require.Same(t, e, find(e.key, e.limit))
		for _, other := range []window.Limit{
			{Max: e.limit.Max, Scale: time.Minute}, {Max: e.limit.Max, Scale: time.Second, Name: "n"},
			{Max: e.limit.Max, Scale: time.Second, Algorithm: window.AlignedWindow}, {Max: 7, Scale: time.Second},
		} {
			require.Nil(t, find(e.key, other))
		}
		if tab.lookUp(e.key, &e.limit) == e {
			fast++
		}
	}
	require.Greater(t, fast, recents/4)
	require.Less(t, fast, len(all))
	for i, e := range all {
		require.Equal(t, len(all)-i-1, tab.remove(e))
		require.Nil(t, find(e.key, e.limit))
	}
	require.Equal(t, [recents]int{}, func() (left [recents]int) {
		for i := range tab.recent {
			if tab.recent[i].Load() != nil {
				left[i]++
			}
		}
		return left
	}())
}
