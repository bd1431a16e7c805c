package lease

import (
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
	e := newEntry(b, 1, "k", l, 0)
	e.drop(true)
	var a answer
	v, err := e.spend(t.Context(), 1, &a)
	require.NoError(t, err)
	require.Equal(t, pass, v)
	w, err := store.Peek(t.Context(), "k", l, 0)
	require.NoError(t, err)
	require.Zero(t, w.Count)
}
