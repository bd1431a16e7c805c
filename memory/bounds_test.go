package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
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

// An attacker makes up a million keys. Whatever calls come, no key gets more than its limit.
func TestNoKeyGetsMoreThanItsLimitWhenTheMemoryIsFull(t *testing.T) {
	const limit = 5
	calls := 60_000
	if race.Enabled { // which has nothing to find in one goroutine
		calls /= 5
	}
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			clock := backendtest.NewClock()
			b := newBackend(t, clock, memory.WithMaxKeys(3000))
			granted := map[string]int{}
			all := 0
			for i := range calls {
				key := fmt.Sprint("made up ", i/10)
				if i%4 == 0 {
					key = fmt.Sprint("again ", i%1000)
				}
				if takeOne(caller{t, b, a}, i, key, limitOf(a, time.Hour, limit)) {
					granted[key]++
					all++
				}
			}
			for key, n := range granted {
				require.LessOrEqual(t, n, limit, key)
			}
			require.GreaterOrEqual(t, all, 3000, "keys that are stored get what they may have")
			require.LessOrEqual(t, b.Len(), 3000)
		})
	}
}

// takeOne takes 1 for a key in a way that depends on i.
func takeOne(c caller, i int, key string, l window.Limit) (granted bool) {
	switch i % 4 {
	case 0, 1:
		return !c.of(c.Take(c.Context(), key, l, 1)).Refused
	case 2:
		granted, _ = c.takeAll(l.For(key, 1))
		return granted
	}
	w := c.of(c.Hit(c.Context(), key, l, 1))
	return !w.Refused && w.Count <= l.Max
}

// A key without a window is denied until there is room, which no policy turns into a grant. Other keys are not affected.
func TestAFullMemoryRefusesNewKeys(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			clock := backendtest.NewClock()
			b := newBackend(t, clock, memory.WithMaxKeys(2), memory.WithCleanPeriod(time.Hour))
			c, ctx, l := caller{t, b, a}, t.Context(), limitOf(a, time.Minute, 10)
			c.hit("a", time.Minute)
			c.hit("b", time.Minute)
			full := window.Window{Count: 10, Refused: true, RetryAfter: time.Hour}
			require.Equal(t, full, c.hit("new", time.Minute))
			require.Equal(t, full, c.of(b.Take(ctx, "new", l, 1)))
			require.Equal(t, full, c.of(b.Peek(ctx, "new", l, 1)))
			require.Zero(t, c.of(b.Take(ctx, "new", l, 0)))
			require.Zero(t, c.get("new", time.Minute))
			granted, windows := c.takeAll(l.For("a", 1), l.For("new", 1))
			require.False(t, granted)
			require.Equal(t, full, windows[1])
			require.EqualValues(t, 1, c.get("a", time.Minute).Count, "nothing was taken")
			granted, windows = c.takeAll(l.For("new", 0))
			require.True(t, granted)
			require.Zero(t, windows[0])
			_, err := b.Charge(ctx, "new", l, 1)
			require.ErrorIs(t, err, window.ErrFull)
			_, err = b.Set(ctx, "new", l, 1)
			require.ErrorIs(t, err, window.ErrFull)
			require.EqualError(t, err,
				`memory: set "new": store is full: at most 2 windows, and 16 hits in sliding logs for each of them`)
			require.NoError(t, b.Reset(ctx, "new", l))

			require.EqualValues(t, 2, c.hit("a", time.Minute).Count)
			require.NoError(t, b.Reset(ctx, "b", l))
			granted, _ = c.takeAll(l.For("new", 1), l.For("newer", 1))
			require.False(t, granted, "there is room for one of them")
			require.Equal(t, 1, b.Len())
			c.hit("b", time.Minute)
			clock.Advance(2*time.Minute - 1)
			c.set("a", time.Minute, 1)
			clock.Advance(1)
			granted, _ = c.takeAll(l.For("a", 1))
			require.True(t, granted)
			require.Equal(t, 2, b.Len(), "what needs no room makes none")
			clock.Advance(2 * time.Minute)
			granted, _ = c.takeAll(l.For("new", 1), l.For("newer", 1))
			require.True(t, granted, "the others are over")
			require.LessOrEqual(t, b.Len(), 2)
		})
	}
}

// When there is room is not known: a wait asks again, whatever its deadline is.
func TestAWaitGoesOnWhenTheMemoryIsFull(t *testing.T) {
	for _, a := range everyAlgorithm {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New(memory.WithMaxKeys(1))
			defer b.Close()
			limiter := throttr.NewRateLimit(b)
			l := limitOf(a, time.Second, 10)
			_, err := limiter.Take(t.Context(), "a", l, 1)
			require.NoError(t, err)
			res, err := limiter.Peek(t.Context(), "new", l, 1)
			require.NoError(t, err)
			require.False(t, res.Allowed)
			require.Zero(t, res.Remaining)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun := time.Now()
			_, err = limiter.Wait(ctx, "new", l, 1)
			require.NoError(t, err)
			require.Less(t, time.Since(begun), 3*time.Second)
		})
	}
}

// advance lets virtual time pass, and waits until everything that happens then has happened.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWindowsThatAreOverAreRemovedEveryCleanPeriod(t *testing.T) {
	const period = 7 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithCleanPeriod(period))
		defer b.Close() // otherwise the bubble waits for its goroutine
		c := caller{t, b, window.FixedWindow}
		c.hit("short", time.Second)
		c.hit("long", period+time.Second)
		advance(period - 1)
		require.Equal(t, 2, b.Len())
		advance(1)
		require.Equal(t, 1, b.Len())
		advance(period)
		require.Zero(t, b.Len())
	})
}

// A window that a call has ended is none of those that are over.
func TestCleanCountsNoWindowThatACallHasEnded(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock), window.TokenBucket}
	c.hit("ended", time.Minute)
	c.hit("over", time.Minute)
	c.set("ended", time.Minute, 0)
	clock.Advance(time.Minute)
	require.Equal(t, 1, c.Clean())
	require.Zero(t, c.Len())
}

func TestKeyOlderThanIsCountedFromTheEnd(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithKeyOlderThan(time.Hour)), window.FixedWindow}
	c.hit("k", time.Minute)
	clock.Advance(time.Minute)
	require.Zero(t, c.get("k", time.Minute), "it is kept, but not active")
	clock.Advance(time.Hour - 1)
	require.Zero(t, c.Clean())
	require.Equal(t, 1, c.Len())
	clock.Advance(1)
	require.Equal(t, 1, c.Clean())

	c.hit("k", time.Minute)
	clock.Advance(time.Minute + time.Second)
	require.EqualValues(t, 1, c.hit("k", time.Minute).Count)
	clock.Advance(time.Hour)
	require.Zero(t, c.Clean(), "a hit has opened another window")
}

func TestBeforeDropSeesOnlyCleanedWindows(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock, memory.WithMaxKeys(2),
		memory.WithBeforeDrop(func(dropped []window.Listed) { t.Errorf("%+v", dropped) }))
	c := caller{t, b, window.FixedWindow}
	c.hitNewKeys(5, time.Minute)
	clock.Advance(time.Minute)
	c.hitNewKeys(2, time.Minute) // these replace windows that are over
	require.NoError(t, b.Reset(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 10)))
	c.hit("k", time.Minute)
	require.Zero(t, b.Clean())
	require.NoError(t, b.Close())
}

// Each window is seen once. The function may use the backend, and cleanings may run at the same time.
func TestBeforeDropIsCalledWithoutALock(t *testing.T) {
	clock := backendtest.NewClock()
	var b *memory.Backend
	var mu sync.Mutex
	seen := map[string]int{}
	// With so few keys, all are in one shard, which is looked at in steps.
	b = newBackend(t, clock, memory.WithMaxKeys(1000), memory.WithBeforeDrop(func(dropped []window.Listed) {
		require.NotEmpty(t, dropped)
		for _, d := range dropped {
			require.Equal(t, limitOf(window.FixedWindow, time.Second, 10), d.Limit)
			require.Equal(t, window.Window{Count: 1, ExpiresAt: clock.Now(), ID: d.Window.ID}, d.Window)
			caller{t, b, window.FixedWindow}.hit(d.Key, 100*time.Hour)
			b.Clean()
			mu.Lock()
			seen[d.Key]++
			mu.Unlock()
		}
	}))
	const n = 200
	for i := range n {
		caller{t, b, window.FixedWindow}.hit(fmt.Sprint("k", i), time.Second)
	}
	clock.Advance(time.Second)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { b.Clean() })
	}
	all.Wait()
	require.Len(t, seen, n)
	for key, times := range seen {
		require.Equal(t, 1, times, key)
	}
	require.Equal(t, n, b.Len())
}

// In a bubble, a goroutine that does not stop fails the test.
func TestCloseStopsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { require.NoError(t, b.Close()) })
			all.Go(func() { _, _ = b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 1), 1) })
			all.Go(func() { b.Clean() })
		}
		all.Wait()
		_, err := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 1), 1)
		require.ErrorIs(t, err, window.ErrClosed)
	})
}

func TestCloseWaitsForTheCleaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := false
		b := memory.New(memory.WithBeforeDrop(func([]window.Listed) {
			time.Sleep(time.Second)
			done = true
		}))
		caller{t, b, window.FixedWindow}.hit("k", time.Second)
		advance(time.Minute)
		require.NoError(t, b.Close())
		require.True(t, done)
	})
}
