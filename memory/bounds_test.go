package memory_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
)

// invent hits n keys that nobody has hit before, and returns how many were let in.
func (c caller) invent(n int, scale time.Duration) (in int) {
	c.Helper()
	for range n {
		invented++
		_, err := c.Hit(c.Context(), fmt.Sprint("invented", invented), scale, 10, 1)
		if err == nil {
			in++
			continue
		}
		require.ErrorIs(c, err, memory.ErrFull)
	}
	return in
}

var invented int

func TestMaxKeysBoundsTheWindows(t *testing.T) {
	for _, o := range []memory.Overflow{memory.Refuse, memory.Evict} {
		for _, most := range []int{1, 2, 3, 17, 1000, 2047, 2048, 20_000} {
			b := newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(most), memory.WithOverflow(o))
			in := caller{t, b}.invent(2*most, time.Minute)
			require.LessOrEqual(t, b.Len(), most)
			require.GreaterOrEqual(t, b.Len(), most-most/10)
			if most < 2048 {
				require.Equal(t, most, b.Len())
			}
			if o == memory.Refuse {
				require.Equal(t, b.Len(), in)
			} else {
				require.Equal(t, 2*most, in)
			}
		}
	}
}

func TestRefusedKeysAreToldTheBound(t *testing.T) {
	c := caller{t, newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(1))}
	c.hit("a", time.Minute)
	_, err := c.Set(t.Context(), "b", time.Minute, 1)
	require.ErrorIs(t, err, memory.ErrFull)
	require.EqualError(t, err, "memory: too many keys: at most 1")
	_, err = c.Hit(t.Context(), "a", time.Hour, 1, 1)
	require.ErrorIs(t, err, memory.ErrFull, "another scale is another window")
	require.Zero(t, c.get("b", time.Minute))
	require.NoError(t, c.Reset(t.Context(), "a", time.Minute))
	c.set("b", time.Minute, 1)
}

func TestInventedKeysDoNotResetACount(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(3000))}
	c.set("full", time.Minute, 10)
	c.set("idle", time.Minute, 0)
	for range 59 {
		clock.Advance(time.Second)
		c.invent(300, time.Minute)
		c.invent(300, 10*time.Second)
	}
	require.EqualValues(t, 11, c.hit("full", time.Minute).Count)
	require.EqualValues(t, 1, c.hit("idle", time.Minute).Count)
	clock.Advance(time.Second)
	require.EqualValues(t, 1, c.hit("full", time.Minute).Count, "its slot is its own after the end, too")
}

// Of 2000 windows one is over: that a few picked at random show it is not likely.
func TestTheOnlyWindowThatIsOverMakesRoom(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(2000))}
	c.invent(1000, time.Hour)
	c.hit("short", time.Minute)
	c.invent(999, time.Hour)
	clock.Advance(time.Minute - 1)
	require.Zero(t, c.invent(10, time.Hour))
	clock.Advance(1)
	require.Equal(t, 1, c.invent(10, time.Hour))
	require.Equal(t, 2000, c.Len())
	require.Zero(t, c.get("short", time.Minute))
}

func TestManyWindowsThatAreOverMakeRoomForAsMany(t *testing.T) {
	for _, o := range []memory.Overflow{memory.Refuse, memory.Evict} {
		clock := backendtest.NewClock()
		c := caller{t, newBackend(t, clock, memory.WithMaxKeys(2000), memory.WithOverflow(o), memory.WithKeyOlderThan(time.Hour))}
		require.Equal(t, 1000, c.invent(1000, time.Hour))
		require.Equal(t, 1000, c.invent(1000, time.Minute))
		clock.Advance(time.Minute)
		c.set("full", time.Minute, 10)
		in := c.invent(999, time.Hour)
		require.Equal(t, 999, in)
		require.Equal(t, 2000, c.Len())
		require.EqualValues(t, 10, c.get("full", time.Minute).Count)
	}
}

// A few windows end at a time, and sweeps are not made at each hit: none is overlooked for
// long.
func TestRoomIsFoundSoon(t *testing.T) {
	const most = 2000
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(most))}
	for i := range most {
		c.hit(fmt.Sprint("k", i), time.Duration(i+1)*100*time.Millisecond)
	}
	for i := 10; i <= most; i += 10 {
		clock.Advance(time.Second)
		require.Equal(t, 10, c.invent(11, time.Hour), i)
	}
}

func TestEvictedAreThoseWithFewHits(t *testing.T) {
	for _, most := range []int{10, 1000, 10_000} {
		c := caller{t, newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(most), memory.WithOverflow(memory.Evict))}
		for i := range most / 10 {
			c.set(fmt.Sprint("full", i), time.Minute, 10)
		}
		require.Equal(t, 5*most, c.invent(5*most, time.Hour))
		lost := 0
		for i := range most / 10 {
			if c.get(fmt.Sprint("full", i), time.Minute).Count != 10 {
				lost++
			}
		}
		require.LessOrEqual(t, lost, most/1000, "hardly ever are all of those looked at full")
	}
}

func TestLongKeysDoNotFillTheMemory(t *testing.T) {
	const n, length = 300, 100_000
	b := newBackend(t, backendtest.NewClock())
	before := heap()
	for i := range n {
		key := fmt.Sprint(strings.Repeat("k", length), i)
		require.EqualValues(t, 1, caller{t, b}.hit(key, time.Minute).Count)
		require.EqualValues(t, 2, caller{t, b}.hit(key, time.Minute).Count)
	}
	require.Less(t, heap(), before+n*length/5)
	require.Equal(t, n, b.Len())
}

func TestKeysDoNotHoldWhatTheyArePartOf(t *testing.T) {
	const n, length = 300, 100_000
	b := newBackend(t, backendtest.NewClock())
	before := heap()
	for i := range n {
		header := fmt.Sprint(i, ",", strings.Repeat(".", length))
		key, _, _ := strings.Cut(header, ",")
		caller{t, b}.hit(key, time.Minute)
		caller{t, b}.hit(key, time.Minute)
	}
	require.Less(t, heap(), before+n*length/5)
	runtime.KeepAlive(b)
}

func TestMemoryIsGivenBack(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock)}
	c.set("stays", time.Hour, 7)
	before := heap()
	c.invent(100_000, time.Minute)
	require.Greater(t, heap(), before+5_000_000)
	clock.Advance(time.Minute)
	require.Equal(t, 100_000, c.Clean())
	require.Less(t, heap(), before+1_000_000)
	require.EqualValues(t, 8, c.hit("stays", time.Hour).Count)
}
