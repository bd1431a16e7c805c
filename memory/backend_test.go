package memory_test

import (
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// open opens a backend as throttr.Open does.
func open(t *testing.T, url string) (window.BackendCloser, error) {
	return window.Driver("memory")(t.Context(), url)
}

func TestOpen(t *testing.T) {
	b, err := open(t, "memory://?max_keys=1&lazy=true")
	require.NoError(t, err)
	defer b.Close()
	c := caller{t, b.(*memory.Backend), window.FixedWindow}
	c.hit("k", time.Minute)
	require.True(t, c.hit("other", time.Minute).Refused, "there is no room")
	for _, url := range []string{
		"host", "/path", "me:hidden@", "#fragment", "?max_keys=-1", "?max_keys=many", "?max_keys=1&max_keys=2",
		"?lazy=maybe", "?maxkeys=1", "?a=%zz", "?max_keys=1&a=%zz",
	} {
		_, err := open(t, "memory://"+url)
		require.ErrorIs(t, err, window.ErrConfig, url)
		require.ErrorContains(t, err, "with max_keys=N or lazy=true")
		require.NotContains(t, err.Error(), "hidden")
	}
}

func TestTheCleanerEndsWithTheBackend(t *testing.T) {
	seen := make(chan []window.Listed, 1)
	func() {
		b := memory.New(memory.WithCleanPeriod(time.Millisecond), memory.WithBeforeDrop(func(d []window.Listed) { seen <- d }))
		caller{t, b, window.FixedWindow}.hit("k", time.Millisecond)
		runtime.AddCleanup(b, func(c chan []window.Listed) { close(c) }, seen)
	}()
	for end := time.After(time.Minute); ; {
		runtime.GC()
		select {
		case _, open := <-seen:
			if !open {
				return // nobody refers to it, not even its timer
			}
		case <-time.After(time.Millisecond):
		case <-end:
			t.Fatal("the backend is still in use")
		}
	}
}

func TestStats(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock, memory.WithMaxKeys(10))
	l := limitOf(window.FixedWindow, time.Minute, 10)
	c := caller{t, b, window.FixedWindow}
	for _, key := range []string{"a", "b", "a"} {
		c.hit(key, time.Minute)
	}
	granted, _ := c.takeAll(l.For("a", 1), l.For("b", 1))
	require.True(t, granted)
	_, err := b.Hit(t.Context(), "a", window.Limit{}, 1)
	require.ErrorIs(t, err, window.ErrScale, "a mistake is no error of the store")
	require.Equal(t, window.Stats{Windows: 2, Stores: []window.StoreStats{{Name: "memory", Calls: 4}}}, b.Stats())
	require.NoError(t, b.Ping(t.Context()))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Ping(t.Context()), window.ErrClosed)
	_, err = b.Hit(t.Context(), "a", l, 1)
	require.ErrorIs(t, err, window.ErrClosed)
	require.EqualValues(t, 1, b.Stats().Stores[0].Errors)
}

// 0 is the default of every option, and what can't be is a mistake.
func TestOptions(t *testing.T) {
	for name, opt := range map[string]func() memory.Option{
		"memory: WithCleanPeriod: -1ns is negative":            func() memory.Option { return memory.WithCleanPeriod(-1) },
		"memory: WithKeyOlderThan: -1ns is negative":           func() memory.Option { return memory.WithKeyOlderThan(-1) },
		"memory: WithMaxKeys: -1 is negative":                  func() memory.Option { return memory.WithMaxKeys(-1) },
		"memory: WithMaxLog: 536870912 is more than 536870911": func() memory.Option { return memory.WithMaxLog(1 << 29) },
		"memory: New: option 1 is nil":                         func() memory.Option { return nil },
	} {
		require.PanicsWithValue(t, name, func() { memory.New(opt()) })
	}
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithClock(nil), memory.WithCleanPeriod(0), memory.WithKeyOlderThan(0), memory.WithMaxKeys(0),
			memory.WithBeforeDrop(nil), memory.WithMaxLog(0))
		defer b.Close()
		require.EqualValues(t, memory.DefaultMaxKeys, memory.MaxKeys(b))
		traits, err := b.Check(limitOf(window.SlidingLog, time.Minute, memory.DefaultMaxLog))
		require.NoError(t, err)
		require.EqualValues(t, memory.DefaultMaxLog, traits.MaxCount)
		_, err = b.Check(limitOf(window.FixedWindow, window.MaxScale, math.MaxInt64))
		require.NoError(t, err)
		caller{t, b, window.FixedWindow}.hit("k", time.Second)
		advance(time.Minute)
		require.Zero(t, b.Len(), "removed every minute")
	})
}
