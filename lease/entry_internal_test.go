package lease

import (
	"context"
	"math/rand/v2"
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

func TestCloseGivesBackAlsoIfItIsCalledTwiceAtOnce(t *testing.T) {
	store := memory.New()
	defer store.Close()
	b := New(store)
	l := window.Limit{Max: 100, Scale: time.Hour, Algorithm: window.FixedWindow}
	e := b.table.add(newEntry(b, "k", l, 0))
	e.size = 8
	_, _, err := e.spend(t.Context(), 1)
	require.NoError(t, err)
	e.mu.Lock() // the first Close waits for it
	closed := make(chan error)
	go func() { closed <- b.Close() }()
	require.Eventually(t, func() bool { return b.table.all() == nil }, time.Minute, time.Millisecond)
	time.AfterFunc(20*time.Millisecond, e.mu.Unlock)
	require.NoError(t, b.Close())
	require.NoError(t, <-closed)
	require.Equal(t, BlockStats{Spent: 1, Returned: 7, Takes: 1}, b.Blocks())
}

func TestTheTimesAndSizesOfBlocks(t *testing.T) {
	const sent, ms = 10 * time.Second, time.Millisecond
	require.Equal(t, sent+999*time.Second-50*ms, diesAt(sent, 1000*time.Second, 50*ms), "clocks may differ")
	require.Equal(t, sent+ms, untilOf(sent, sent+ms, time.Second))
	require.Equal(t, sent+time.Second, untilOf(sent, sent+time.Hour, time.Second), "another process may have reset it")
	for _, s := range []struct {
		size, spent uint64
		took        time.Duration
		want        uint64
	}{
		{8, 8, 9 * ms, 16}, {8, 7, 9 * ms, 8}, {8, 8, 10 * ms, 8}, {8, 8, 40 * ms, 8}, {8, 0, 41 * ms, 4}, {1, 0, 41 * ms, 1},
	} {
		require.Equal(t, s.want, sizeAfter(s.size, s.spent, s.took, 10*ms), s)
	}
}

// HotHits is how many hits make a key hot.
const HotHits = hotHits

// Stumble makes the process stop now and then before it reads the clock.
func (b *Backend) Stumble(often int, longest time.Duration) {
	b.stop = func() {
		if rand.IntN(often) == 0 {
			time.Sleep(rand.N(longest))
		}
	}
}

// HitAndSource is Hit, and reports whether the backend that b takes from has answered.
func (b *Backend) HitAndSource(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, asked bool, err error) {
	return b.take(ctx, key, l, n)
}
