package memory_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var everyAlgorithm = []window.Algorithm{window.FixedWindow, window.AlignedWindow, window.TokenBucket, window.SlidingWindow, window.SlidingLog}

// fillUp returns a backend whose windows are all in use for an hour, with the options given.
func fillUp(t *testing.T, clock backendtest.Clock, keys int, a window.Algorithm, opts ...memory.Option) caller {
	c := caller{t, newBackend(t, clock, append([]memory.Option{memory.WithMaxKeys(keys)}, opts...)...), a}
	for i := range 2 * keys {
		_, err := c.Hit(t.Context(), fmt.Sprint("stored", i), limitOf(a, time.Hour, 1), 1)
		require.NoError(t, err)
	}
	return c
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
				ok, err := takeOne(t, b, i, key, limitOf(a, time.Hour, limit))
				require.NoError(t, err)
				if ok {
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
func takeOne(t *testing.T, b *memory.Backend, i int, key string, l window.Limit) (granted bool, err error) {
	var w window.Window
	switch i % 4 {
	case 0:
		w, err = b.Take(t.Context(), key, l, 1)
		granted = !w.Refused
	case 1:
		w, err = b.Take(t.Context(), key, l, 1)
		granted = !w.Refused
	case 2:
		granted, err = b.TakeAll(t.Context(), []window.Take{l.For(key, 1)}, make([]window.Window, 1))
	default:
		w, err = b.Hit(t.Context(), key, l, 1)
		granted = !w.Refused && w.Count <= l.Max
	}
	return granted, err
}

// Windows end, keys get windows of their own and share counts in turn, and takes are given back. A key never
// has more in any window than its limit: in an interval of one scale, at most twice that.
func TestKeysThatShareCountsNeverGetMore(t *testing.T) {
	const limit, scale = 4, time.Second
	type take struct {
		key  string
		id   int64
		when time.Time
	}
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(a)))
			clock := backendtest.NewClock()
			b := newBackend(t, clock, memory.WithMaxKeys(100))
			var takes []take
			held := map[string][]time.Time{}
			shared, granted := 0, 0
			for i := range 30_000 {
				key := fmt.Sprint(random.IntN(150))
				limits := []window.Take{limitOf(a, scale, limit).For(key, 1)}
				if other := fmt.Sprint(random.IntN(150)); other != key && i%3 == 0 {
					limits = append(limits, limitOf(a, scale, limit).For(other, 1))
				}
				windows := make([]window.Window, len(limits))
				ok, err := b.TakeAll(t.Context(), limits, windows)
				require.NoError(t, err)
				for j, l := range limits {
					if b.Shares(l.Key, limitOf(a, scale, 10)) {
						shared++
					}
					if ok {
						granted++
						takes = append(takes, take{l.Key, windows[j].ID, clock.Now()})
						held[l.Key] = append(held[l.Key], clock.Now())
					}
				}
				if len(takes) > 50 || len(takes) > 0 && i%4 == 0 {
					at := random.IntN(len(takes))
					last := takes[at]
					takes = append(takes[:at], takes[at+1:]...)
					ok, err := b.GiveBack(t.Context(), last.key, limitOf(a, scale, 10), 1, last.id)
					require.NoError(t, err)
					for j, when := range held[last.key] {
						if ok && when.Equal(last.when) {
							held[last.key] = append(held[last.key][:j:j], held[last.key][j+1:]...)
							break
						}
					}
				}
				if i%10 == 0 {
					clock.Advance(time.Duration(random.IntN(100)) * time.Millisecond)
				}
				if i%1000 == 0 {
					b.Clean()
				}
			}
			for key, times := range held {
				for j := 2 * limit; j < len(times); j++ {
					require.GreaterOrEqual(t, times[j].Sub(times[j-2*limit]), scale, key)
				}
			}
			require.Greater(t, shared, 1000)
			require.Greater(t, granted, 5000)
		})
	}
}

// A key that shares a count does so until that is over, although there is room.
func TestASharedCountContinuesWhenThereIsRoom(t *testing.T) {
	for _, a := range everyAlgorithm {
		clock := backendtest.NewClock()
		c := caller{t, newBackend(t, clock, memory.WithMaxKeys(1)), a}
		c.hit("stored0", time.Hour)
		take := func(key string, n uint64) (uint64, bool) {
			w, err := c.Take(t.Context(), key, limitOf(a, time.Minute, 10), n)
			require.NoError(t, err)
			return w.Count, !w.Refused
		}
		_, granted := take("k", 10)
		require.True(t, granted)
		require.True(t, c.Shares("k", limitOf(a, time.Minute, 10)))
		require.NoError(t, c.Reset(t.Context(), "stored0", limitOf(a, time.Hour, 10)))
		count, granted := take("k", 1)
		require.False(t, granted)
		require.EqualValues(t, 10, count)
		if a.Rolling() {
			require.Equal(t, 1, c.Len(), "it has a copy")
		}
		require.EqualValues(t, 10, c.get("k", time.Minute).Count)
		clock.Advance(2 * time.Minute)
		require.Zero(t, c.get("k", time.Minute))
		count, _ = take("k", 1)
		require.EqualValues(t, 1, count)
		require.Equal(t, 1, c.Len(), "it has a window of its own now")
		require.Zero(t, c.Clean(), "shared counts are no windows")
		clock.Advance(2 * time.Minute)
		require.Equal(t, 1, c.Clean())
	}
}

func TestSetResetAndDeleteOfASharedCountDoNotLowerIt(t *testing.T) {
	for _, a := range everyAlgorithm {
		clock := backendtest.NewClock()
		c := fillUp(t, clock, 1, a)
		w, err := c.Take(t.Context(), "other", limitOf(a, time.Minute, 10), 6)
		require.NoError(t, err)
		require.False(t, w.Refused)
		for _, set := range []struct{ n, want uint64 }{{0, 6}, {5, 6}, {8, 8}, {3, 8}} {
			require.Equal(t, set.want, c.set("k", time.Minute, set.n).Count, "%v", a)
			require.Equal(t, set.want, c.get("other", time.Minute).Count, "%v", a)
		}
		err = c.Reset(t.Context(), "k", limitOf(a, time.Minute, 10))
		require.ErrorIs(t, err, window.ErrFull)
		require.EqualError(t, err, `memory: reset "k": store is full: at most 1 windows: others share its count`)
		_, err = c.Delete(t.Context(), "k", time.Minute)
		require.ErrorIs(t, err, window.ErrFull)
		_, err = c.Delete(t.Context(), "k")
		require.ErrorIs(t, err, window.ErrFull)
		require.EqualValues(t, 8, c.get("other", time.Minute).Count)

		clock.Advance(2 * time.Hour) // no count of another scale is active, either
		require.NoError(t, c.Reset(t.Context(), "k", limitOf(a, time.Minute, 10)))
		_, err = c.Delete(t.Context(), "k")
		require.NoError(t, err)
	}
}

// A key that has a window of its own has its whole limit again after that was ended, and not the count of the
// others.
func TestAWindowThatIsEndedLeavesNoSharedCount(t *testing.T) {
	const key, limit = "own", 5
	ends := map[string]func(*testing.T, *memory.Backend, window.Limit) error{
		"Reset": func(t *testing.T, b *memory.Backend, l window.Limit) error { return b.Reset(t.Context(), key, l) },
		"Set": func(t *testing.T, b *memory.Backend, l window.Limit) error {
			_, err := b.Set(t.Context(), key, l, 0)
			return err
		},
		"Delete": func(t *testing.T, b *memory.Backend, l window.Limit) error {
			_, err := b.Delete(t.Context(), key, l.Scale)
			return err
		},
		"Delete all": func(t *testing.T, b *memory.Backend, _ window.Limit) error {
			_, err := b.Delete(t.Context(), key)
			return err
		},
	}
	for _, a := range append(everyAlgorithm[:], window.CalendarWindow) {
		for name, end := range ends {
			if a == window.CalendarWindow && name == "Delete" {
				continue // it has no scale
			}
			t.Run(a.String()+", "+name, func(t *testing.T) {
				b := newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(64), memory.WithBeforeDrop(
					func(all []window.Listed) { require.NotEqual(t, key, all[0].Key, "the call has ended it") }))
				l := window.Limit{Name: "named", Max: limit, Scale: time.Hour, Algorithm: a}
				if a == window.CalendarWindow {
					l.Scale = 0
					l.Calendar = window.Month
					l.Zone = "Europe/Berlin"
					l.StartDay = 17
				}
				take := func(n uint64) window.Window {
					w, err := b.Take(t.Context(), key, l, n)
					require.NoError(t, err)
					return w
				}
				require.False(t, take(limit).Refused)
				for i := range 1000 {
					_, err := b.Hit(t.Context(), fmt.Sprint("made up ", i), l, 1)
					require.NoError(t, err)
				}
				for range 2 {
					require.NoError(t, end(t, b, l))
					w, err := b.Peek(t.Context(), key, l, 0)
					require.NoError(t, err)
					require.Zero(t, w.Count)
				}
				w := take(limit)
				require.False(t, w.Refused)
				require.EqualValues(t, limit, w.Count)
				require.True(t, take(1).Refused)
				require.NoError(t, b.Reset(t.Context(), key, l))
				b.Clean()
				require.LessOrEqual(t, b.Len(), 64)
			})
		}
	}
}

// Keys of limits that gain more tokens may share a bucket with keys of limits that gain fewer, and must not refill it
// for these.
func TestASharedBucketGainsAsFewTokensAsForAnyKey(t *testing.T) {
	clock := backendtest.NewClock()
	c := fillUp(t, clock, 1, window.TokenBucket)
	few, many := limitOf(window.TokenBucket, time.Minute, 10), limitOf(window.TokenBucket, time.Minute, 1000)
	granted := func(key string, l window.Limit, n uint64) bool {
		w, err := c.Take(t.Context(), key, l, n)
		require.NoError(t, err)
		return !w.Refused
	}
	require.True(t, granted("few", few, 9))
	for range 5 {
		require.True(t, granted("many", many, 1))
		clock.Advance(6 * time.Second)
		require.False(t, granted("few", few, 9), "it has gained one token, which the other has taken")
	}
	clock.Advance(time.Minute)
	require.True(t, granted("few", few, 9))
	clock.Advance(time.Minute)
	require.True(t, granted("many", many, 1000), "the bucket was full, so it is that of the other now")
	clock.Advance(30 * time.Second)
	require.True(t, granted("many", many, 500))
}

// What is given back is what the take has added, and nothing of an own window that was there before.
func TestAGiveBackToASharedCountGivesBackTheTake(t *testing.T) {
	for _, a := range everyAlgorithm {
		clock := backendtest.NewClock()
		c := fillUp(t, clock, 1, a)
		_, err := c.Take(t.Context(), "other", limitOf(a, time.Minute, 10), 3)
		require.NoError(t, err)
		w, err := c.Take(t.Context(), "k", limitOf(a, time.Minute, 10), 4)
		require.NoError(t, err)
		require.False(t, w.Refused)
		ok, err := c.GiveBack(t.Context(), "k", limitOf(a, time.Minute, 10), 4, w.ID)
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 3, c.get("other", time.Minute).Count, "%v", a)

		own, err := c.Take(t.Context(), "stored0", limitOf(a, time.Hour, 10), 2)
		require.NoError(t, err)
		require.NoError(t, c.Reset(t.Context(), "stored0", limitOf(a, time.Hour, 10)))
		_, err = c.Take(t.Context(), "stored1", limitOf(a, time.Hour, 10), 2) // shares a count since before
		require.NoError(t, err)
		before := c.get("stored1", time.Hour).Count
		ok, err = c.GiveBack(t.Context(), "stored0", limitOf(a, time.Hour, 10), 2, own.ID)
		require.NoError(t, err)
		require.False(t, ok, "%v", a)
		require.Equal(t, before, c.get("stored1", time.Hour).Count)
	}
}

// Takes of keys that share a count are one take of their sum, also if they share it from this call on.
func TestTakesOfKeysThatShareACount(t *testing.T) {
	for _, a := range everyAlgorithm {
		for _, active := range []bool{true, false} {
			c := fillUp(t, backendtest.NewClock(), 1, a)
			left := uint64(10)
			if active {
				c.hit("other", time.Minute)
				left--
			}
			l := limitOf(a, time.Minute, 10)
			limits := []window.Take{l.For("a", 2), l.For("b", 3), l.For("c", left-4)}
			windows := make([]window.Window, 3)
			granted, err := c.TakeAll(t.Context(), limits, windows)
			require.NoError(t, err)
			require.False(t, granted)
			require.True(t, windows[2].Refused, "%v", a)
			require.Equal(t, 10-left, c.get("a", time.Minute).Count, "%v", a)
			require.Equal(t, !active, c.get("a", time.Minute).ID == 0)
			limits[2].N--
			granted, err = c.TakeAll(t.Context(), limits, windows)
			require.NoError(t, err)
			require.True(t, granted)
			for _, w := range windows {
				require.EqualValues(t, 10, w.Count, "%v", a)
			}
		}
	}
}

// Neither is more counted than one count for 64 windows and scale, nor more than 16 times as many.
func TestSharedCountsAreBounded(t *testing.T) {
	c := fillUp(t, backendtest.NewClock(), 640, window.FixedWindow)
	failed := 0
	for i := range 20_000 {
		if _, err := c.Hit(t.Context(), fmt.Sprint(i), limitOf(window.FixedWindow, time.Minute+time.Duration(i%15), 10), 1); err != nil {
			failed++
		}
	}
	require.Zero(t, failed)
	require.LessOrEqual(t, c.Len(), 640)
	for i := range 1000 {
		if _, err := c.Hit(t.Context(), fmt.Sprint(i), limitOf(window.FixedWindow, time.Second, 10), 1); err != nil {
			require.ErrorIs(t, err, window.ErrFull)
			failed++
		}
	}
	require.Equal(t, 1000, failed)
}

// Shared counts are removed to make room for others when they are over.
func TestSharedCountsThatAreOverMakeRoom(t *testing.T) {
	for _, a := range everyAlgorithm {
		clock := backendtest.NewClock()
		c := fillUp(t, clock, 1, a)
		for i := range time.Duration(100) {
			c.hit("k", time.Second+i)
			clock.Advance(200 * time.Millisecond)
		}
	}
}

func TestBeforeDropDoesNotSeeSharedCounts(t *testing.T) {
	clock := backendtest.NewClock()
	seen := 0
	c := fillUp(t, clock, 10, window.FixedWindow, memory.WithBeforeDrop(func(dropped []window.Listed) {
		for _, d := range dropped {
			require.LessOrEqual(t, len(d.Key), 128)
			seen++
		}
	}))
	clock.Advance(time.Hour)
	require.Positive(t, c.Shared())
	require.Equal(t, 10, c.Clean())
	require.Equal(t, 10, seen)
	require.Zero(t, c.Shared(), "they are removed")
}

// New keys come all the time. When there is room again, they get windows of their own, also with an algorithm
// whose windows do not end at a time.
func TestNewKeysShareNoCountsSoonAfterThereIsRoom(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			clock := backendtest.NewClock()
			c := caller{t, newBackend(t, clock, memory.WithMaxKeys(1000)), a}
			for i := range 2000 {
				c.hit(fmt.Sprint("many", i), time.Minute)
			}
			granted := map[string]int{}
			for i := range 400 {
				key := fmt.Sprint("new", i)
				for range 20 {
					w, err := c.Take(t.Context(), key, limitOf(a, time.Minute, 10), 1)
					require.NoError(t, err)
					if !w.Refused {
						require.LessOrEqual(t, w.Count, uint64(10))
						granted[key]++
					}
				}
				clock.Advance(time.Second)
			}
			for i := range 100 {
				require.Equal(t, 10, granted[fmt.Sprint("new", 300+i)])
				require.False(t, c.Shares(fmt.Sprint("new", 300+i), limitOf(a, time.Minute, 10)))
			}
			for key, n := range granted {
				require.LessOrEqual(t, n, 10, key)
			}
		})
	}
}

// The text of a shared count has a key of its own, which can be longer than that of a window.
func TestSharedCountsOfShortKeysAndLongNames(t *testing.T) {
	for n := range 60 {
		b := memory.New(memory.WithMaxKeys(1))
		for i := range 16 {
			l := window.Limit{Name: fmt.Sprintf("%02d", i) + strings.Repeat("n", n), Max: 3, Scale: time.Hour, Algorithm: window.FixedWindow}
			for take := range 5 {
				w, err := b.Take(t.Context(), "", l, 1)
				require.NoError(t, err)
				require.Equal(t, take >= 3, w.Refused, "a name of %d bytes", n+2)
			}
		}
	}
}
