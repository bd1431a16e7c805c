package memory_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// hitNewKeys hits n keys that were never hit before, and returns how many got a window of their own.
func (c caller) hitNewKeys(n int, scale time.Duration) (stored int) {
	c.Helper()
	for range n {
		newKeys++
		key := fmt.Sprint("new", newKeys)
		if !c.hit(key, scale).Refused {
			stored++
		}
	}
	return stored
}

var newKeys int // keys that hitNewKeys has used

func TestMaxKeysBoundsTheWindows(t *testing.T) {
	for _, most := range []int{1, 2, 3, 17, 1000, 2047, 2048, 20_000} {
		b := newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(most))
		stored := caller{t, b, window.FixedWindow}.hitNewKeys(2*most, time.Minute)
		require.LessOrEqual(t, b.Len(), most)
		require.GreaterOrEqual(t, b.Len(), most-most/10)
		if most < 2048 {
			require.Equal(t, most, b.Len())
		}
		require.Equal(t, b.Len(), stored)
	}
}

func TestNewKeysDoNotResetCounts(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(3000)), window.FixedWindow}
	c.set("full", time.Minute, 10)
	c.set("idle", time.Minute, 0)
	for range 59 {
		clock.Advance(time.Second)
		c.hitNewKeys(300, time.Minute)
		c.hitNewKeys(300, 10*time.Second)
	}
	require.EqualValues(t, 11, c.hit("full", time.Minute).Count)
	require.EqualValues(t, 1, c.hit("idle", time.Minute).Count)
	clock.Advance(time.Second)
	require.EqualValues(t, 1, c.hit("full", time.Minute).Count, "it keeps its cell after the end")
}

// One of 2000 windows is over. New keys look at some of them.
func TestOnlyWindowThatIsOverMakesRoom(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(2000)), window.FixedWindow}
	c.hitNewKeys(1000, time.Hour)
	c.hit("short", time.Minute)
	c.hitNewKeys(999, time.Hour)
	clock.Advance(time.Minute - 1)
	require.Zero(t, c.hitNewKeys(10, time.Hour))
	clock.Advance(1)
	require.Equal(t, 1, c.hitNewKeys(300, time.Hour))
	require.Equal(t, 2000, c.Len())
	require.Zero(t, c.get("short", time.Minute))
}

// Neither long keys nor the long strings of which short ones are slices stay in memory.
func TestLongStringsDoNotFillTheMemory(t *testing.T) {
	const n, length = 300, 100_000
	for name, keyOf := range map[string]func(i int) string{
		"long keys": func(i int) string { return fmt.Sprint(strings.Repeat("k", length), i) },
		"slices":    func(i int) string { return fmt.Sprint(i, ",", strings.Repeat(".", length))[:len(fmt.Sprint(i))] },
	} {
		c := caller{t, newBackend(t, backendtest.NewClock()), window.FixedWindow}
		before := heap()
		for i := range n {
			key := keyOf(i)
			require.EqualValues(t, 1, c.hit(key, time.Minute).Count)
			require.EqualValues(t, 2, c.hit(key, time.Minute).Count)
		}
		require.Less(t, heap(), before+n*length/5, name)
		require.Equal(t, n, c.Len())
	}
}

// What is removed takes none. A cleaning removes it.
func TestAWindowAndItsKeyTakeFewBytes(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const n = 100_000
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock), window.FixedWindow}
	before := heap()
	for i := range n {
		c.hit(fmt.Sprintf("user:%011d", i), time.Hour)
	}
	perKey := float64(heap()-before) / n
	t.Logf("%.1f bytes for each of %d keys of 16 bytes", perKey, n)
	require.LessOrEqual(t, perKey, 160.0)
	clock.Advance(time.Hour)
	require.Equal(t, n, c.Clean())
	require.Less(t, heap(), before+n*20)
}

// Takes of thousands of keys hold all shards, each once.
func TestTakesOfManyWindowsAtOnce(t *testing.T) {
	c := caller{t, newBackend(t, backendtest.NewClock()), window.FixedWindow}
	takes := make([]window.Take, 2000)
	for i := range takes {
		takes[i] = limitOf(c.algorithm, time.Minute, 2).For(fmt.Sprint(i), 1)
	}
	for round := range uint64(3) {
		granted, windows := c.takeAll(takes...)
		require.Equal(t, round < 2, granted)
		for i := range windows {
			require.Equal(t, min(round+1, 2), windows[i].Count)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
