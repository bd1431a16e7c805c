package lease

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEntriesAreFoundUntilTheyAreRemoved adds more entries than there are places to find them fast.
func TestEntriesAreFoundUntilTheyAreRemoved(t *testing.T) {
	tab := newTable(4 * recents)
	find := func(key string, limit uint64) *entry {
		if e := tab.lookUp(key, time.Second, limit); e != nil {
			return e
		}
		return tab.find(tab.hash(key, time.Second, limit), key, time.Second, limit)
	}
	var all []*entry
	fast := 0
	for i := range 2 * recents {
		key, limit := "user:"+strconv.Itoa(i/2), uint64(i%2)
		e := &entry{hash: tab.hash(key, time.Second, limit), key: key, scale: time.Second, limit: limit}
		if added, first := tab.add(e); added { // unless all ways of the hash have other entries
			require.Equal(t, len(all) == 0, first)
			all = append(all, e)
		}
	}
	require.Greater(t, len(all), recents)
	for _, e := range all {
		require.Same(t, e, find(e.key, e.limit))
		require.Nil(t, tab.lookUp(e.key, time.Minute, e.limit), "of another scale")
		if tab.lookUp(e.key, e.scale, e.limit) == e {
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
