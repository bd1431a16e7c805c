package memory_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var (
	algorithms     = []window.Algorithm{window.FixedWindow, window.AlignedWindow}
	rolling        = []window.Algorithm{window.TokenBucket, window.SlidingWindow, window.SlidingLog}
	everyAlgorithm = slices.Concat(algorithms, rolling)
)

func TestConformance(t *testing.T) {
	for _, a := range limits.Algorithms {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				backend := newBackend(t, clock, memory.WithMaxKeys(8192)) // few shards, so that keys are in the same
				return backendtest.Subject{Backend: backend, Clock: clock, Algorithm: a}
			})
		})
	}
}

// newBackend returns a backend that uses clock and is closed at the end of the test.
func newBackend(t *testing.T, clock backendtest.Clock, opts ...memory.Option) *memory.Backend {
	b := memory.New(append([]memory.Option{memory.WithClock(clock.Now)}, opts...)...)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// caller makes calls that must not fail.
type caller struct {
	*testing.T
	*memory.Backend
	algorithm window.Algorithm
}

var limitOf = memory.LimitOf

// of returns the window of a call.
func (c caller) of(w window.Window, err error) window.Window {
	c.Helper()
	require.NoError(c, err)
	return w
}

func (c caller) hit(key string, scale time.Duration) window.Window {
	c.Helper()
	return c.of(c.Hit(c.Context(), key, limitOf(c.algorithm, scale, 10), 1))
}

func (c caller) set(key string, scale time.Duration, count uint64) window.Window {
	c.Helper()
	return c.of(c.Set(c.Context(), key, limitOf(c.algorithm, scale, 10), count))
}

func (c caller) get(key string, scale time.Duration) window.Window {
	c.Helper()
	return c.of(c.Peek(c.Context(), key, limitOf(c.algorithm, scale, 10), 0))
}

// takeAll makes takes, and returns their windows.
func (c caller) takeAll(takes ...window.Take) (granted bool, windows []window.Window) {
	c.Helper()
	windows = make([]window.Window, len(takes))
	granted, err := c.TakeAll(c.Context(), takes, windows)
	require.NoError(c, err)
	return granted, windows
}

// Windows end all the time, on the real clock and with cleanings in between. No two hits of a
// window return the same count. The ExpiresAt of a window is not always the same: the wall clock is read once a second.
func TestNoCountIsReturnedTwiceWhileWindowsEnd(t *testing.T) {
	const goroutines, hits, scale = 16, 20_000, window.MinScale
	b := memory.New(memory.WithCleanPeriod(scale), memory.WithMaxKeys(100))
	defer b.Close()
	type result struct {
		window int64 // its ID
		count  uint64
	}
	results := make([][]result, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for range hits {
				w, err := b.Charge(t.Context(), "k", limitOf(window.FixedWindow, scale, 10), 1)
				if err != nil {
					t.Error(err)
				}
				results[g] = append(results[g], result{w.ID, w.Count})
			}
		})
	}
	all.Wait()
	seen := map[int64]map[uint64]bool{}
	for _, r := range slices.Concat(results...) {
		if seen[r.window] == nil {
			seen[r.window] = map[uint64]bool{}
		}
		if seen[r.window][r.count] {
			t.Fatalf("returned twice: %+v", r)
		}
		seen[r.window][r.count] = true
	}
	require.Greater(t, len(seen), 3)
	for _, counts := range seen {
		require.True(t, counts[uint64(len(counts))], "a count is missing")
	}
}

func TestHitsOfExistingWindowsDoNotAllocate(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			b := memory.New()
			defer b.Close()
			clock := backendtest.NewClock()
			ending := newBackend(t, clock)
			key := strings.Repeat("k", 128)
			const scale = 100 * time.Hour
			c, ctx := caller{t, b, a}, t.Context()
			c.hit(key, scale)
			limit, full := limitOf(a, scale, 9000), limitOf(a, scale, 1)
			var windows [4]window.Window
			two := []window.Take{limit.For("a", 1), limit.For("b", 1)}
			four := append(two, full.For("c", 1), full.For("d", 1))
			for name, call := range map[string]func() error{
				"Hit":             func() error { _, err := b.Hit(ctx, key, limit, 1); return err },
				"Charge":          func() error { _, err := b.Charge(ctx, "charged", limit, 1); return err },
				"Peek":            func() error { _, err := b.Peek(ctx, key, limit, 0); return err },
				"Peek at nothing": func() error { _, err := b.Peek(ctx, "other", limit, 0); return err },
				"Set":             func() error { _, err := b.Set(ctx, key, limit, 1); return err },
				"TakeAll":         func() error { _, err := b.TakeAll(ctx, two, windows[:2]); return err },
				"GiveBack":        func() error { _, err := b.GiveBack(ctx, "a", limit, 1, windows[0].ID); return err },
				"granted":         func() error { _, err := b.Take(ctx, key, limit, 1); return err },
				"refused":         func() error { _, err := b.Take(ctx, "c", full, 1); return err },
				"four":            func() error { _, err := b.TakeAll(ctx, four, windows[:]); return err },
				"after the end": func() error {
					clock.Advance(scale)
					_, err := ending.Hit(ctx, key, limit, 1)
					return err
				},
			} {
				require.Zero(t, testing.AllocsPerRun(1000, func() { // some make a log longer
					if err := call(); err != nil {
						t.Error(err)
					}
				}), name)
			}
		})
	}
}

// The time of a call is read when it is its turn: one that waits does not count in the past. So windows start a scale
// apart, whatever the order in which calls on one key get their turn.
func TestACallThatWaitsDoesNotCountInThePast(t *testing.T) {
	var b *memory.Backend
	start, readings := time.Unix(1_000_000_000, 0), 0
	b = memory.New(memory.WithMaxKeys(1), memory.WithClock(func() time.Time {
		if b != nil {
			readings++
			require.True(t, memory.Locked(b), "another call may read a later time, and count before this one")
		}
		return start
	}))
	defer b.Close()
	limit := window.Limit{Max: 2, Scale: time.Minute, Algorithm: window.FixedWindow}
	for want, call := range []func() error{
		func() error { _, err := b.Hit(t.Context(), "k", limit, 1); return err },
		func() error { _, err := b.Take(t.Context(), "k", limit, 1); return err },
		func() error {
			_, err := b.TakeAll(t.Context(), []window.Take{limit.For("k", 1)}, make([]window.Window, 1))
			return err
		},
		func() error { _, err := b.GiveBack(t.Context(), "k", limit, 1, 1); return err },
		func() error { _, err := b.Delete(t.Context(), "k"); return err },
	} {
		require.NoError(t, call())
		require.Equal(t, want+1, readings)
	}
}

// What is denied changes nothing, but it notices that the clock has gone back, so that it is not denied until that is
// as late as before. A cleaning notices it, too.
func TestDenialsNoticeAClockThatGoesBack(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, a := range algorithms {
		for _, years := range []time.Duration{1, 30, 140} {
			clock := backendtest.NewClock()
			clock.Advance(140 * year)
			c := caller{t, newBackend(t, clock), a}
			c.set("k", time.Minute, 3)
			clock.Advance(-years * year)
			for steps := 0; ; steps++ {
				require.LessOrEqual(t, steps, 4, "%v, after %d years", a, years)
				granted, windows := c.takeAll(limitOf(a, time.Minute, 3).For("k", 3), limitOf(a, time.Hour, 3).For("other", 1))
				if granted {
					break
				}
				clock.Advance(min(windows[0].RetryAfter, 30*time.Second))
			}
			c.set("cleaned", time.Minute, 3)
			clock.Advance(-time.Hour)
			require.Zero(t, c.Clean())
			clock.Advance(time.Minute)
			require.Equal(t, 2, c.Clean(), "all but the other")
		}
	}
}

// A window ends after what is left of it, also if that and the time since the last reading together, or the time since
// then, are more than a [time.Duration] holds.
func TestWindowsEndAfterWhatIsLeft(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, steps := range [][]time.Duration{{99 * year}, {math.MaxInt64, math.MaxInt64, time.Hour}, {-math.MaxInt64, -time.Hour}} {
		clock := backendtest.NewClock()
		b := newBackend(t, clock)
		for _, d := range steps {
			clock.Advance(d)
		}
		w, err := b.Charge(t.Context(), "k", limitOf(window.TokenBucket, window.MaxScale, 1), 2)
		require.NoError(t, err)
		require.Greater(t, w.Left, 200*year)
		require.True(t, w.ExpiresAt.Equal(clock.Now().Add(w.Left)), w.ExpiresAt)
	}
}

func TestAlignedWindowsFollowTheWallClock(t *testing.T) {
	b := memory.New()
	defer b.Close()
	w := caller{t, b, window.AlignedWindow}.hit("k", time.Hour)
	require.Equal(t, w.ExpiresAt.UTC().Truncate(time.Hour), w.ExpiresAt.UTC())
	require.WithinDuration(t, time.Now(), w.ExpiresAt, time.Hour)
}
