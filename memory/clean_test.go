package memory_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

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
