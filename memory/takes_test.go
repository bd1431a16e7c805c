package memory_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

// Takes of thousands of keys hold all shards, each once.
func TestTakesOfManyWindowsAtOnce(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	limits := make([]window.Take, 5000)
	for i := range limits {
		limits[i] = limitOf(window.FixedWindow, time.Minute, 2).For(string(rune('a'+i%50))+string(rune('a'+i/50)), 1)
	}
	windows := make([]window.Window, len(limits))
	for round := range uint64(3) {
		granted, err := b.TakeAll(t.Context(), limits, windows)
		require.NoError(t, err)
		require.Equal(t, round < 2, granted)
		for i := range windows {
			require.Equal(t, min(round+1, 2), windows[i].Count)
		}
	}
}

func TestCountThatWasTooLargeIsNotGivenBack(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	c := caller{t, b, window.FixedWindow}
	w := c.set("k", time.Minute, math.MaxInt64-1)
	_, err := b.Charge(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 10), 5)
	require.NoError(t, err)
	ok, err := b.GiveBack(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 10), 5, w.ID)
	require.NoError(t, err)
	require.False(t, ok)
	require.EqualValues(t, uint64(math.MaxInt64), c.get("k", time.Minute).Count)
}
