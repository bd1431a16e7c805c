package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// A caller may have found an entry that is closed then: what it took would never be given back.
func TestAnEntryThatIsClosedTakesNothing(t *testing.T) {
	store := memory.New()
	defer store.Close()
	b := New(store)
	defer b.Close()
	l := window.Limit{Max: 100, Scale: time.Hour, Algorithm: window.FixedWindow}
	spends := func() {
		t.Helper()
		e := newEntry(b, "k", l, 0)
		e.drop(true)
		_, v, err := e.spend(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, toBackend, v)
		w, err := store.Peek(t.Context(), "k", l, 0)
		require.NoError(t, err)
		require.Zero(t, w.Count)
	}
	spends()
	require.NoError(t, b.Close())
	spends()
	e := newEntry(b, "k", l, 0)
	_, v, err := e.spend(context.Background(), 1)
	require.NoError(t, err)
	require.Equal(t, toBackend, v, "nothing is taken any more")
}
