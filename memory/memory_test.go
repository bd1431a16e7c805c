package memory_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
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

func TestLogsHaveALargestMax(t *testing.T) {
	c := caller{t, newBackend(t, backendtest.NewClock(), memory.WithMaxLog(10)), window.SlidingLog}
	_, err := c.Take(t.Context(), "k", limitOf(window.SlidingLog, time.Minute, 11), 1)
	require.ErrorContains(t, err, "Max 11 is out of range: it may be at most 10 with a sliding-log")
	l := limitOf(window.SlidingLog, time.Minute, 10)
	for _, step := range []struct{ n, want uint64 }{{8, 8}, {8, 10}, {1 << 62, 10}} {
		require.Equal(t, step.want, c.of(c.Charge(t.Context(), "k", l, step.n)).Count)
	}
	require.EqualValues(t, 10, c.set("k", time.Minute, 11).Count)
}

// Whatever the clock shows, no call panics, and no key is denied for longer than three scales, or what it owes.
func TestAlgorithmsWithAnyClock(t *testing.T) {
	for _, a := range everyAlgorithm {
		random := rand.New(rand.NewPCG(1, 2))
		now := time.Now()
		b := memory.New(memory.WithClock(func() time.Time { return now }), memory.WithMaxKeys(100), memory.WithCleanPeriod(math.MaxInt64))
		scales := []time.Duration{window.MinScale, time.Second, time.Hour, math.MaxInt64 / 4, window.MaxScale}
		for range 20_000 {
			ctx, key, scale := t.Context(), fmt.Sprint(random.IntN(20)), scales[random.IntN(len(scales))]
			limit, n := limitOf(a, scale, random.Uint64N(20)), random.Uint64N(10)
			w, err := b.Hit(ctx, key, limit, n)
			require.NoError(t, err)
			ten := limitOf(a, scale, 10)
			_, err = b.GiveBack(ctx, key, ten, n, w.ID)
			require.NoError(t, err)
			_, err = b.Peek(ctx, key, limit, n)
			require.NoError(t, err)
			if _, err = b.Charge(ctx, key, ten, n); err == nil && random.IntN(10) == 0 {
				_, err = b.Set(ctx, key, ten, n)
			}
			if err != nil {
				require.ErrorIs(t, err, window.ErrFull)
			}
			if w.Refused && n <= limit.Max && limit.Max > 0 && scale <= time.Hour {
				most := 3 * scale
				if a == window.TokenBucket {
					most = 40 * scale // Charge has made it lack up to 38 tokens, of which one comes back in a scale
				}
				require.LessOrEqual(t, w.RetryAfter, most)
			}
			switch random.IntN(12) {
			case 0:
				now = time.Unix(random.Int64()>>random.IntN(40), 0)
			case 1:
				now = now.Add(-scale)
			case 2:
				now = now.Add(scale)
			case 3:
				b.Clean()
			default:
				now = now.Add(time.Duration(random.Int64N(int64(time.Second))))
			}
		}
		require.NoError(t, b.Close())
	}
}

// There is room for 1024 times. What does not fit is refused until the log is over, which no policy allows, and takes
// nothing. When others are over, they make room.
func TestSlidingLogsAreBounded(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock, memory.WithMaxKeys(64), memory.WithMaxLog(256), memory.WithCleanPeriod(time.Hour))
	c, ctx, l := caller{t, b, window.SlidingLog}, t.Context(), limitOf(window.SlidingLog, time.Minute, 256)
	fill := func(key string, n int) (granted int) {
		for range n {
			if !c.of(b.Take(ctx, key, l, 1)).Refused {
				granted++
			}
			clock.Advance(1)
		}
		return granted
	}
	for i, n := range []int{2, 256, 256, 256, 128, 64, 32, 16, 8, 4, 2} {
		require.Equal(t, n, fill(fmt.Sprint("k", i), n))
	}
	full := window.Window{Count: 256, Refused: true, RetryAfter: time.Minute - 1023}
	require.Equal(t, full, c.of(b.Take(ctx, "k0", l, 1)), "until its last take, 1023 ns ago, is over")
	full.RetryAfter = time.Hour
	require.Equal(t, full, c.of(b.Peek(ctx, "another", l, 1)))
	_, err := b.Charge(ctx, "another", l, 1)
	require.ErrorIs(t, err, window.ErrFull)
	fixed := limitOf(window.FixedWindow, time.Minute, 5)
	granted, windows := c.takeAll(fixed.For("another", 1), l.For("another", 1))
	require.False(t, granted)
	require.Equal(t, []bool{false, true}, []bool{windows[0].Refused, windows[1].Refused})
	require.Zero(t, c.of(b.Peek(ctx, "another", fixed, 0)))
	require.EqualValues(t, 256, c.get("k3", time.Minute).Count)
	require.Equal(t, 11, b.Len(), "what is denied leaves nothing")

	clock.Advance(time.Minute)
	require.Equal(t, 256, fill("another", 256))
	require.Equal(t, 1, b.Len())
}

// One key can always have the largest limit, whatever the bound.
func TestALogOfTheLargestLimitFits(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(2)), window.SlidingLog}
	for range 20_000 {
		require.False(t, c.of(c.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 1)).Refused)
		clock.Advance(103 * time.Microsecond)
	}
	require.Greater(t, c.get("k", time.Second).Count, uint64(9000))

	// What is given back needs no room.
	l := limitOf(window.SlidingLog, time.Hour, 10_000)
	last := int64(0)
	for i := range 100_000 {
		w := c.of(c.Take(t.Context(), "given back", l, 1))
		require.False(t, w.Refused, "take %d", i)
		if i >= 9_999 {
			given, err := c.GiveBack(t.Context(), "given back", l, 1, last)
			require.NoError(t, err)
			require.True(t, given)
		}
		last = w.ID
		clock.Advance(1)
	}
}

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
	b := newBackend(t, clock, memory.WithMaxKeys(2))
	l := limitOf(window.FixedWindow, time.Minute, 10)
	c := caller{t, b, window.FixedWindow}
	for _, key := range []string{"a", "b", "a"} {
		c.hit(key, time.Minute)
	}
	granted, _ := c.takeAll(l.For("a", 1), l.For("b", 1))
	require.True(t, granted)
	require.Equal(t, window.Stats{Windows: 2, Stores: []window.StoreStats{{Name: "memory", Calls: 4}}}, b.Stats())
	stats := window.StoreStats{Name: "memory", Calls: 4}
	requireCounted := func(call string, fails bool) {
		stats.Calls++
		if fails {
			stats.Errors++
		}
		require.Equal(t, stats, b.Stats().Stores[0], call)
	}
	_, err := b.Hit(t.Context(), "a", window.Limit{}, 1)
	require.ErrorIs(t, err, window.ErrScale)
	requireCounted("a mistake", false)
	_, err = b.Charge(t.Context(), "c", l, 1)
	require.ErrorIs(t, err, window.ErrFull)
	requireCounted("a new key", true)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i, ctx := range []context.Context{t.Context(), ended, t.Context()} {
		if i == 2 {
			require.NoError(t, b.Close())
			require.ErrorIs(t, b.Ping(t.Context()), window.ErrClosed)
		}
		for name, call := range map[string]func() error{
			"hit":       func() error { _, err := b.Hit(ctx, "a", l, 1); return err },
			"give back": func() error { _, err := b.GiveBack(ctx, "a", l, 1, 1); return err },
			"reset":     func() error { return b.Reset(ctx, "b", l) },
			"take all": func() error {
				_, err := b.TakeAll(ctx, []window.Take{l.For("c", 1)}, make([]window.Window, 1))
				return err
			},
			"delete":      func() error { _, err := b.Delete(ctx, "d"); return err },
			"list":        func() error { _, err := testkit.Collect(t, b.List(ctx)); return err },
			"exchange":    func() error { return b.Exchange(ctx, nil, nil) },
			"list places": func() error { _, err := testkit.Collect(t, b.ListPlaces(ctx)); return err },
		} {
			require.ErrorIs(t, call(), []error{nil, context.Canceled, window.ErrClosed}[i], name)
			requireCounted(name, i == 1)
		}
	}
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

func TestListTellsTheBurstUnlessItIsTheMax(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	for burst, want := range map[uint64]uint64{0: 0, 4: 4, 10: 0, 20: 20} {
		l := limitOf(window.TokenBucket, time.Minute, 10)
		l.Burst = burst
		caller{t, b, l.Algorithm}.of(b.Take(t.Context(), "k", l, 1))
		for listed, err := range b.List(t.Context(), "k") {
			require.NoError(t, err)
			require.Equal(t, []uint64{10, want}, []uint64{listed.Limit.Max, listed.Limit.Burst})
		}
	}
}

// Of a long key, a digest is listed, which is no key.
func TestListReturnsDigests(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	l, long := limitOf(window.FixedWindow, time.Minute, 10), strings.Repeat("k", 129)
	c := caller{t, b, l.Algorithm}
	c.of(b.Take(t.Context(), long, l, 3))
	for _, keys := range [][]string{{long}, nil} {
		for listed, err := range b.List(t.Context(), keys...) {
			require.NoError(t, err)
			require.True(t, listed.Digest)
			require.EqualValues(t, 3, listed.Window.Count)
			require.Zero(t, c.get(listed.Key, time.Minute))
			for range b.List(t.Context(), listed.Key) {
				t.Error("the digest is listed as a key")
			}
		}
	}
}

// Short keys are stored in another place than long ones.
func TestKeysOfAnyLength(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	l := limitOf(window.FixedWindow, time.Minute, 10)
	l.Name = "name"
	for n := range 40 {
		key := strings.Repeat("k", n)
		for range 2 {
			caller{t, b, l.Algorithm}.of(b.Take(t.Context(), key, l, 1))
		}
		for listed, err := range b.List(t.Context(), key) {
			require.NoError(t, err)
			require.Equal(t, []any{key, "name"}, []any{listed.Key, listed.Limit.Name})
			require.EqualValues(t, 2, listed.Window.Count)
		}
		require.Equal(t, n+1, b.Len())
	}
}

// Of many windows, those that are there all the time are seen, while others are removed. The end of ctx ends the list.
func TestAListOfManyWindows(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	l := limitOf(window.FixedWindow, time.Minute, 10)
	const n = 5000
	for i := range n {
		caller{t, b, l.Algorithm}.hit(fmt.Sprint(i), time.Minute)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listed := 0
	for _, err := range b.List(ctx) {
		listed++
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
	require.Less(t, listed, 500)
	seen, removed := map[string]bool{}, map[string]bool{}
	for c, err := range b.List(t.Context()) {
		require.NoError(t, err)
		seen[c.Key] = true
		if other := fmt.Sprint(len(seen) * 7 % n); len(seen)%3 == 0 {
			removed[other] = true
			require.NoError(t, b.Reset(t.Context(), other, l))
		}
	}
	for i := range n {
		key := fmt.Sprint(i)
		require.True(t, seen[key] || removed[key], key)
	}
}

// What a bound costs depends on what is used.
func TestBoundsMayBeAsLargeAsPossible(t *testing.T) {
	before := heap()
	for _, opts := range [][]memory.Option{
		{memory.WithMaxKeys(math.MaxInt)}, {memory.WithMaxKeys(math.MaxInt), memory.WithMaxLog(1<<29 - 1)},
		{memory.WithMaxKeys(1), memory.WithMaxLog(10)}, {memory.WithCleanPeriod(math.MaxInt64), memory.WithKeyOlderThan(math.MaxInt64)}, {memory.WithCleanPeriod(1)},
	} {
		b := newBackend(t, backendtest.NewClock(), opts...)
		for _, a := range everyAlgorithm {
			for key := range 3 {
				require.LessOrEqual(t, caller{t, b, a}.hit(fmt.Sprint(key), time.Minute).Count, uint64(10))
			}
		}
		require.Less(t, heap(), before+4_000_000)
	}
}

// Keys of one cell of a table are told apart.
func TestListOfAKeyHasNoOthers(t *testing.T) {
	c := caller{t, newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(64)), window.FixedWindow}
	for i := range 64 {
		c.hit(fmt.Sprint(i), time.Minute)
	}
	for i := range 64 {
		for listed, err := range c.List(t.Context(), fmt.Sprint(i)) {
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), listed.Key)
		}
	}
}

// Strings of windows that are over would be made while calls wait for the mutex.
func TestListMakesNothingOfWindowsThatAreOver(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock)
	c := caller{t, b, window.FixedWindow}
	for i := range 1000 {
		c.hit(fmt.Sprint(i), time.Second)
	}
	clock.Advance(time.Second)
	require.Less(t, testing.AllocsPerRun(1, func() { testkit.Collect(t, b.List(t.Context())) }), 100.0)
	require.Equal(t, 1000, b.Len())
}
