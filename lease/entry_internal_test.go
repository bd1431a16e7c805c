package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// A caller may have found an entry that is closed then, or make one after Close: what it took would never be given
// back.
func TestAnEntryThatIsClosedTakesNothing(t *testing.T) {
	store := memory.New()
	defer store.Close()
	b := New(store)
	defer b.Close()
	l := window.Limit{Max: 100, Scale: time.Hour, Algorithm: window.FixedWindow}
	spends := func(e *entry) {
		t.Helper()
		_, v, err := e.spend(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, toBackend, v)
		w, err := store.Peek(t.Context(), "k", l, 0)
		require.NoError(t, err)
		require.Zero(t, w.Count)
	}
	e := b.table.add(newEntry(b, "k", l, 0))
	require.Same(t, e, b.table.add(newEntry(b, "k", l, 0)), "it is there already")
	e.drop(true)
	spends(e)
	require.NoError(t, b.Close())
	require.Empty(t, b.table.entries)
	require.Nil(t, b.table.add(newEntry(b, "k", l, 0)))
	spends(newEntry(b, "k", l, 0))
}
