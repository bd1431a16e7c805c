package fixedwindow

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/slot"
)

// entryOf returns slots whose window is open until a time.
func entryOf(key string, until time.Time) *slots {
	l := fixed(time.Minute, 1)
	return &slots{entryKey: entryKeyOf(key, &l), janitor: &janitor{}, known: known{ok: true, Window: slot.Window{Times: slot.Times{Latest: until}}}}
}

// find returns the entry of a key.
func (t *table) findKey(key string) *slots {
	return t.find(entryKey{key: key, scale: time.Minute})
}

func TestTableHasOneEntryForEachCount(t *testing.T) {
	var tb table
	tb.init(1024)
	added := make(chan *slots, 8)
	var all sync.WaitGroup
	for range cap(added) {
		all.Go(func() { added <- tb.add(entryOf("k", time.Time{})) })
	}
	all.Wait()
	first := <-added
	for range cap(added) - 1 {
		require.Same(t, first, <-added)
	}
	require.Same(t, first, tb.findKey("k"))
	is := first.entryKey
	for _, other := range []entryKey{
		{"k", "", time.Hour}, {"k", "login", is.scale},
	} {
		require.Nil(t, tb.find(other))
	}
	require.Nil(t, tb.findKey("other"))
	require.Equal(t, []entryKey{is}, tb.of("k"))
	require.Empty(t, tb.of("other"))
	require.Equal(t, 1, tb.len())
}

func TestTableEvictsWhatIsLeastValuable(t *testing.T) {
	now := time.Now()
	var tb table
	tb.init(2 * tableShards) // two entries in each shard

	busy := entryOf("busy", now.Add(time.Hour))
	require.True(t, busy.hold())
	tb.add(busy)

	// keys returns keys in the shard of busy.
	next := 0
	key := func() string {
		for {
			if next++; tb.shard(fmt.Sprint(next)) == tb.shard("busy") {
				return fmt.Sprint(next)
			}
		}
	}
	over, open, another := key(), key(), key()
	tb.add(entryOf(over, now.Add(-time.Second)))
	tb.add(entryOf(open, now.Add(time.Hour)))
	require.Nil(t, tb.findKey(over), "its window is over")
	require.NotNil(t, tb.findKey(open))
	tb.add(entryOf(another, now.Add(time.Hour)))
	require.Nil(t, tb.findKey(open), "its window can be looked up again")
	require.NotNil(t, tb.findKey("busy"))
	require.Equal(t, 2, tb.len())

	tb.remove(busy)
	require.NotNil(t, tb.findKey("busy"), "it is in use")
	tb.remove(tb.findKey(another))
	require.NotNil(t, tb.findKey(another), "its window is open")
	busy.release(false)
	busy.forget()
	tb.remove(entryOf("busy", now))
	require.NotNil(t, tb.findKey("busy"), "that was another entry")
	tb.remove(busy)
	require.Nil(t, tb.findKey("busy"))
}

// A call finds an entry, which is evicted, and then the call opens a window. The next call has to find that window,
// with its ID.
func TestEntryThatOpensAWindowStaysInTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, inMemory(t))
		o.MaxWindows = 1
		b := start(t, o)
		l := fixed(time.Minute, 10)
		e, err := b.slotsFor(t.Context(), "k", &l, 1)
		require.NoError(t, err)
		b.table.remove(e)
		require.Zero(t, b.table.len())
		w, _, err := e.do(t.Context(), hit{max: 10, n: 1})
		require.NoError(t, err)
		for i := range 3 {
			hits(t, b, 1, fmt.Sprint(i), l)
		}
		b.table.remove(e)
		again, _, err := b.Hit(t.Context(), "k", l, 1)
		require.NoError(t, err)
		require.Equal(t, w.ID, again.ID)
		require.EqualValues(t, 2, again.Count)
	})
}
