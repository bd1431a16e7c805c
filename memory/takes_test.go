package memory_test

import (
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
	for round := range uint64(3) {
		granted, windows := caller{t, b, window.FixedWindow}.takeAll(limits...)
		require.Equal(t, round < 2, granted)
		for i := range windows {
			require.Equal(t, min(round+1, 2), windows[i].Count)
		}
	}
}
