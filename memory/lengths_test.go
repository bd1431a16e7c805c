package memory_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// New keys do not remove the counts of keys of another length.
func TestEvictIgnoresTheLengthOfKeys(t *testing.T) {
	const most = 1000
	for _, full := range []int{2, 15, 100} {
		c := caller{t, newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(most), memory.WithOverflow(memory.Evict)), window.FixedWindow}
		long := func(i int) string { return strings.Repeat("k", 100) + fmt.Sprint(i) }
		for i := range full {
			c.set(long(i), time.Minute, 10)
		}
		require.Equal(t, 5*most, c.hitNewKeys(5*most, time.Hour))
		lost := 0
		for i := range full {
			if c.get(long(i), time.Minute).Count != 10 {
				lost++
			}
		}
		require.LessOrEqual(t, lost, 1, "a sample rarely has only full windows")
	}
}

// Windows that are over make room for keys of another length, between sweeps too.
func TestWindowsThatAreOverMakeRoomForKeysOfAnotherLength(t *testing.T) {
	const most = 2000
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(most)), window.FixedWindow}
	for i := range most / 4 {
		c.hit(strings.Repeat("k", 100)+fmt.Sprint(i), time.Minute)
	}
	c.hit("short", time.Second)
	c.hitNewKeys(most, time.Hour)
	clock.Advance(time.Minute - 10*time.Millisecond)
	require.Equal(t, 1, c.hitNewKeys(2, time.Hour+1)) // sweeps
	clock.Advance(10 * time.Millisecond)
	require.Greater(t, c.hitNewKeys(100, time.Hour+2), 85, "a quarter of all windows are over")
}
