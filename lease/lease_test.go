package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

const key, age = "k", 100 * time.Millisecond

// per returns the limit of most in a fixed window of a scale.
func per(most uint64, scale time.Duration) window.Limit {
	return window.Limit{Max: most, Scale: scale, Algorithm: window.FixedWindow}
}

// run runs a test in virtual time, with a network, and a backend with an age on it.
func run(t *testing.T, age time.Duration, f func(t *testing.T, n *network, b *lease.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithCleanPeriod(1000 * time.Hour))
		defer store.Close()
		n := &network{Backend: store}
		f(t, n, open(t, n, lease.WithAge(age)))
	})
}

// open returns a backend that is closed at the end of the test.
func open(t *testing.T, store window.Backend, opts ...lease.Option) *lease.Backend {
	b := lease.New(store, append([]lease.Option{lease.WithAge(age)}, opts...)...)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// mustHit makes a hit.
func mustHit(t testing.TB, b window.Backend, key string, l window.Limit, n uint64) window.Window {
	t.Helper()
	w, err := b.Hit(t.Context(), key, l, n)
	require.NoError(t, err)
	return w
}

// hit makes a hit and returns whether it is allowed.
func hit(t testing.TB, b window.Backend, scale time.Duration, limit, n uint64) bool {
	t.Helper()
	return !mustHit(t, b, key, per(limit, scale), n).Refused
}

// allow makes hits of an hour that are all allowed.
func allow(t testing.TB, b window.Backend, times int, limit uint64) {
	t.Helper()
	for range times {
		require.True(t, hit(t, b, time.Hour, limit, 1))
	}
}

// peek returns what is counted.
func peek(t testing.TB, b window.Backend, key string, l window.Limit) window.Window {
	t.Helper()
	w, err := b.Peek(t.Context(), key, l, 0)
	require.NoError(t, err)
	return w
}

// count returns what is counted of a key in an hour.
func count(t testing.TB, b window.Backend, key string) uint64 {
	t.Helper()
	return peek(t, b, key, per(1, time.Hour)).Count
}

// heat makes a key hot.
func heat(t testing.TB, b *lease.Backend, limit uint64) {
	t.Helper()
	allow(t, b, 2*lease.HotHits, limit)
	require.Equal(t, 1, b.Blocks().Keys)
}

func TestHotKeyIsServedFromBlocks(t *testing.T) {
	for _, most := range []uint64{0, 50} { // of WithMaxLease
		run(t, age, func(t *testing.T, n *network, _ *lease.Backend) {
			n.shortest = time.Millisecond
			b := open(t, n, lease.WithMaxLease(int(most)))
			const limit = 10_000
			for i := range uint64(limit) {
				w := mustHit(t, b, key, per(limit, time.Hour), 1)
				require.Equal(t, i+1, w.Count)
				if most > 0 {
					require.LessOrEqual(t, b.Blocks().Held, most)
				}
				time.Sleep(10 * time.Microsecond)
			}
			require.False(t, hit(t, b, time.Hour, limit, 1), "the limit is used")
			require.EqualValues(t, limit, count(t, n, key), "a denied hit counts nothing")
			require.Less(t, n.takes.Load(), int64(400))
			s := b.Blocks()
			require.Zero(t, s.Held+s.Lost)
		})
	}
}

// A key has blocks when it is hit often, also among many that are not.
func TestColdKeysGoToTheBackend(t *testing.T) {
	run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
		for i := range 200 {
			require.True(t, hit(t, b, time.Hour, 1000, 1))
			time.Sleep(age / (lease.HotHits / 2))
			require.Equal(t, int64(i+1), n.takes.Load())
		}
		for i := range 10_000 {
			mustHit(t, b, fmt.Sprint(i), per(1000, time.Hour), 1)
		}
		require.Zero(t, b.Blocks())
		for range 4 * lease.HotHits {
			mustHit(t, b, "another", per(1000, time.Hour), 1)
		}
		require.Equal(t, 1, b.Blocks().Keys)
	})
}

// Limits of a key that differ in anything have blocks of their own. A Set drops those of its count, and a Delete all.
func TestEachLimitOfAKeyHasBlocks(t *testing.T) {
	run(t, time.Hour, func(t *testing.T, n *network, b *lease.Backend) {
		limits := []window.Limit{per(1<<20, time.Hour), per(1<<21, time.Hour), per(1<<20, time.Minute), per(1<<20, time.Hour),
			per(1<<20, time.Hour)}
		limits[3].Name = "n"
		limits[4].Algorithm = window.AlignedWindow
		for i, l := range limits {
			for range 10 * lease.HotHits {
				mustHit(t, b, key, l, 1)
			}
			require.Equal(t, i+1, b.Blocks().Keys)
		}
		for i := 2; i < len(limits); i++ {
			before := b.Blocks().Held
			_, err := b.Set(t.Context(), key, limits[i], 7)
			require.NoError(t, err)
			dropped := before - b.Blocks().Held
			require.Positive(t, dropped)
			require.Less(t, dropped, before/2, "none of the others")
		}
		ended, err := b.Delete(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, 4, ended)
		require.Zero(t, b.Blocks().Held)
	})
}

// A window that may be over a quarter earlier than it says has no blocks: they would be dead soon.
func TestImpreciseWindowsHaveNoBlocks(t *testing.T) {
	run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
		n.imprecise = age
		for scale, want := range map[time.Duration]int{4*age - 4: 0, 4 * age: 1} {
			for range 2 * lease.HotHits {
				hit(t, b, scale, 1000, 1)
			}
			require.Equal(t, want, b.Blocks().Keys, scale)
			time.Sleep(time.Minute)
		}
	})
}

// What is idle is given back, and by Close everything. Hits go to the store then.
func TestBlocksAreGivenBack(t *testing.T) {
	for _, closes := range []bool{false, true} {
		run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
			heat(t, b, 10_000)
			if closes {
				require.NoError(t, b.Close())
				require.NoError(t, b.Close())
			} else {
				time.Sleep(3 * age / 4)
			}
			require.EqualValues(t, 2*lease.HotHits, count(t, n, key), "only hits are counted")
			s := b.Blocks()
			require.Zero(t, s.Held+s.Lost)
			require.NotZero(t, s.Returned)
			time.Sleep(5 * age)
			require.Zero(t, b.Blocks().Keys)
			if closes {
				allow(t, b, 2*lease.HotHits, 10_000)
				require.Zero(t, b.Blocks().Keys)
				require.EqualValues(t, 4*lease.HotHits, count(t, n, key))
			}
		})
	}
}

func TestSetOfOthersShowsWithinTheAge(t *testing.T) {
	run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
		const limit = 1_000_000
		for range 20 { // until blocks are large
			allow(t, b, 1000, limit)
			time.Sleep(time.Millisecond)
		}
		_, err := n.Set(t.Context(), key, per(1, time.Hour), limit)
		require.NoError(t, err)
		allow(t, b, 1, limit) // a place of a block
		for range 100 {
			time.Sleep(age / 100)
			hit(t, b, time.Hour, limit, 1)
		}
		require.False(t, hit(t, b, time.Hour, limit, 1))
		require.NoError(t, n.Reset(t.Context(), key, per(1, time.Hour)))
		time.Sleep(age)
		allow(t, b, 1, limit)
	})
}

func TestMaxKeysBoundsTheBlocks(t *testing.T) {
	run(t, age, func(t *testing.T, n *network, _ *lease.Backend) {
		b := open(t, n, lease.WithMaxKeys(3), lease.WithKeys(func(key string) bool { return key != "k0" }))
		for range 200 {
			for i := range 10 {
				mustHit(t, b, fmt.Sprint("k", i), per(1000, time.Hour), 1)
			}
		}
		require.Equal(t, 3, b.Blocks().Keys)
		require.EqualValues(t, 200, count(t, b, "k0"), "a key that has no leases")
		for i := range 10 {
			require.GreaterOrEqual(t, count(t, b, fmt.Sprint("k", i)), uint64(200))
		}
		require.Panics(t, func() { lease.WithAge(-1) })
		require.Panics(t, func() { lease.WithMaxLease(-1) })
		require.Panics(t, func() { lease.WithMaxKeys(-1) })
	})
}

// The largest numbers are as good as others, and a bound costs nothing that is not used.
func TestOptionsOfAnySize(t *testing.T) {
	for _, size := range []int{0, 1, math.MaxInt} {
		run(t, age, func(t *testing.T, n *network, _ *lease.Backend) {
			b := open(t, n, lease.WithAge(time.Duration(size)), lease.WithMaxLease(size), lease.WithMaxKeys(size))
			allow(t, b, 100, 1000)
			time.Sleep(time.Hour - 1)
			allow(t, b, 100, 1000)
			s := b.Blocks()
			require.LessOrEqual(t, s.Held, uint64(100))
			if size > 1 {
				require.NotZero(t, s.Takes)
				require.Less(t, s.Takes, uint64(50))
			}
		})
	}
}

func TestErrorsOfTheBackendAreReturned(t *testing.T) {
	run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
		n.ways = ways{shortest: time.Millisecond, longest: 2 * time.Millisecond}
		heat(t, b, 1_000_000)
		n.broken.Store(true)
		var err error
		for err == nil {
			_, err = b.Hit(t.Context(), key, per(1_000_000, time.Hour), 1)
		}
		require.ErrorIs(t, err, errLost)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err = b.Hit(ctx, key, per(1_000_000, time.Hour), 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begun), 2*time.Millisecond)
		n.broken.Store(false)
		time.Sleep(time.Second)
		allow(t, b, 1, 1_000_000)
	})
}

// world is how processes and their network behave.
type world struct {
	ways
	stumble time.Duration // how long processes stop at most
	deaths  bool
}

// play lets processes make hits, and returns the windows.
func (w world) play(t *testing.T, n *network, limit window.Limit, most uint64) *windows {
	const long = 5 * time.Second
	ws := new(windows)
	var all sync.WaitGroup
	end := time.Now().Add(long)
	for range 8 {
		b := open(t, &network{Backend: n.Backend, ways: w.ways, seen: ws})
		if w.stumble > 0 {
			b.Stumble(200, w.stumble)
		}
		death := end
		if w.deaths && rand.IntN(3) == 0 {
			death = time.Now().Add(rand.N(long))
		}
		for range 4 {
			all.Go(func() {
				for time.Now().Before(death) {
					k := 1 + rand.Uint64N(most)
					got, asked, err := b.HitAndSource(t.Context(), key, limit, k)
					if err == nil && !got.Refused {
						ws.allow(k, got, asked)
					}
					if err != nil && !errors.Is(err, errLost) {
						t.Errorf("hit: %v", err)
					}
					time.Sleep(rand.N(4 * time.Millisecond))
				}
			})
		}
	}
	all.Wait()
	return ws
}

func TestProcessesTogetherNeverExceedTheLimit(t *testing.T) {
	const ms = time.Millisecond
	quick, usual := ways{shortest: ms / 10, longest: ms / 5}, ways{shortest: ms, longest: 10 * ms}
	for name, w := range map[string]world{
		"quick network":  {ways: quick},
		"slow network":   {ways: ways{shortest: 10 * ms, longest: 100 * ms}},
		"lost answers":   {ways: ways{shortest: ms, longest: 10 * ms, lose: 0.05}},
		"imprecise ends": {ways: ways{shortest: ms, longest: 10 * ms, imprecise: 50 * ms}},
		"stops":          {ways: usual, stumble: 300 * ms},
		"deaths":         {ways: usual, deaths: true},
		"everything": {ways: ways{shortest: ms / 10, longest: 50 * ms, imprecise: 20 * ms, lose: 0.02}, stumble: 300 * ms,
			deaths: true},
	} {
		for most, limit := range map[uint64]uint64{1: 20_000, 5: 2000} { // blocks are held when windows end, or all is spent
			t.Run(fmt.Sprintf("%s/%d", name, most), func(t *testing.T) {
				run(t, age, func(t *testing.T, n *network, _ *lease.Backend) {
					ws := w.play(t, n, per(limit, time.Second/2), most)
					require.GreaterOrEqual(t, len(ws.all), 8)
					used := uint64(0)
					for i, s := range ws.all {
						require.LessOrEqual(t, s.allowed, limit, "window %d", i)
						used += s.allowed
					}
					require.Zero(t, ws.stray, "hits that were allowed while no window was open")
					t.Logf("%.1f %% used of %d windows", 100*float64(used)/float64(limit*uint64(len(ws.all))), len(ws.all))
				})
			})
		}
	}
}

// A process may stop after it has taken a place of a block, until the window has ended.
func TestAPlaceIsOfAWindowThatIsOpen(t *testing.T) {
	run(t, age, func(t *testing.T, _ *network, b *lease.Backend) {
		for range 2 * lease.HotHits { // the key becomes hot
			mustHit(t, b, key, per(10_000, time.Second), 1)
		}
		b.Stumble(3, 2*time.Second)
		for range 100 {
			w := mustHit(t, b, key, per(10_000, time.Second), 1)
			require.False(t, w.ExpiresAt.Before(time.Now()))
		}
	})
}

func TestLimitsWithACalendarPassThrough(t *testing.T) {
	run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
		day := window.Limit{Max: 10_000, Calendar: window.Day, Algorithm: window.CalendarWindow}
		for i := range uint64(10 * lease.HotHits) {
			mustHit(t, b, key, day, 1)
			_, err := b.Take(t.Context(), key, day, 1)
			require.NoError(t, err)
			w := peek(t, n, key, day)
			require.Equal(t, 2*i+2, w.Count, "the count of the backend")
		}
		day.Max = 1
		w := mustHit(t, b, key, day, 1)
		require.Equal(t, uint64(20*lease.HotHits+1), w.Count, "a hit that is denied counts")
		require.Zero(t, b.Blocks().Keys)
	})
}

// The refusal of a store without room says nothing about the window: each hit asks once.
func TestAStoreWithoutRoomIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithMaxKeys(1))
		defer store.Close()
		b := lease.New(store)
		defer b.Close()
		l := window.Limit{Max: 100_000, Scale: time.Minute, Algorithm: window.FixedWindow}
		mustHit(t, store, "other", l, 1)
		before := store.Stats().Stores[0].Calls
		for range 100 {
			w, err := b.Take(t.Context(), "hot", l, 1)
			require.NoError(t, err)
			require.Equal(t, window.Window{Count: l.Max, Refused: true, RetryAfter: time.Minute}, w)
		}
		require.LessOrEqual(t, store.Stats().Stores[0].Calls, before+101)
	})
}

// A key that is not hot behaves as in the backend, except that denied hits are refused and count
// nothing. The blocks of hot keys are tested by the other tests: Count is a place,
// Get shows the places of blocks, and a hit can be denied although places are left.
func TestConformance(t *testing.T) {
	backendtest.RunInBubbles(t, func(t *testing.T) backendtest.Subject {
		store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(24*time.Hour)) // the suite lets years pass
		cold := lease.WithKeys(func(string) bool { return false })
		leases, second := lease.New(store, lease.WithAge(time.Hour), cold), lease.New(store, lease.WithAge(time.Hour), cold)
		closeAll := func() {
			leases.Close()
			second.Close()
			store.Close()
		}
		t.Cleanup(closeAll)
		return backendtest.Subject{Backend: leases, Second: second, Clock: backendtest.BubbleClock{}, SkipsDenied: true,
			Close: closeAll}
	})
}
