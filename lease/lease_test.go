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

	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

const key, age = "k", 100 * time.Millisecond

// per returns the limit of most in a fixed window of a scale.
func per(most uint64, scale time.Duration) window.Limit {
	return window.Limit{Max: most, Scale: scale, Algorithm: window.FixedWindow}
}

// run runs a test in virtual time, with where windows are kept.
func run(t *testing.T, f func(t *testing.T, store window.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		defer store.Close()
		f(t, store)
	})
}

// open returns a backend that is closed at the end of the test.
func open(t *testing.T, store window.Backend, opts ...lease.Option) *lease.Backend {
	b := lease.New(store, append([]lease.Option{lease.WithAge(age)}, opts...)...)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// hit makes a hit and returns whether it is allowed.
func hit(t testing.TB, b window.Backend, scale time.Duration, limit, n uint64) bool {
	t.Helper()
	w, err := b.Hit(t.Context(), key, per(limit, scale), n)
	require.NoError(t, err)
	return !w.Refused
}

// heat makes a key hot.
func heat(t testing.TB, b *lease.Backend, scale time.Duration, limit uint64) {
	t.Helper()
	for range 2 * lease.HotHits {
		require.True(t, hit(t, b, scale, limit, 1))
	}
	require.Equal(t, 1, b.Blocks().Keys)
}

func TestHotKeyIsServedFromBlocks(t *testing.T) {
	for _, most := range []uint64{0, 50} { // of WithMaxLease
		run(t, func(t *testing.T, store window.Backend) {
			n := &network{Backend: store, shortest: time.Millisecond, seen: new(windows)}
			b := open(t, n, lease.WithMaxLease(int(most)))
			const limit = 10_000
			for i := range uint64(limit) {
				w, err := b.Hit(t.Context(), key, per(limit, time.Hour), 1)
				require.NoError(t, err)
				require.Equal(t, i+1, w.Count)
				if most > 0 {
					require.LessOrEqual(t, b.Blocks().Held, most)
				}
				time.Sleep(10 * time.Microsecond)
			}
			require.False(t, hit(t, b, time.Hour, limit, 1), "the limit is used")
			require.Less(t, n.takes.Load(), int64(400))
			s := b.Blocks()
			require.Zero(t, s.Held+s.Lost)
		})
	}
}

// A key has blocks when it is hit often, also among many that are not.
func TestColdKeysGoToTheBackend(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		n := &network{Backend: store, seen: new(windows)}
		b := open(t, n)
		for i := range 200 {
			require.True(t, hit(t, b, time.Hour, 1000, 1))
			time.Sleep(age / (lease.HotHits / 2))
			require.Equal(t, int64(i+1), n.takes.Load())
		}
		for i := range 10_000 {
			_, err := b.Hit(t.Context(), fmt.Sprint(i), per(1000, time.Hour), 1)
			require.NoError(t, err)
		}
		require.Zero(t, b.Blocks())
		for range 4 * lease.HotHits {
			_, err := b.Hit(t.Context(), "another", per(1000, time.Hour), 1)
			require.NoError(t, err)
		}
		require.Equal(t, 1, b.Blocks().Keys)
	})
}

// Limits of a key that differ in anything have blocks of their own. A Set drops those of its count.
func TestEachLimitOfAKeyHasBlocks(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		b := open(t, store, lease.WithAge(time.Hour))
		limits := []window.Limit{per(1<<20, time.Hour), per(1<<21, time.Hour), per(1<<20, time.Minute), per(1<<20, time.Hour),
			per(1<<20, time.Hour)}
		limits[3].Name = "n"
		limits[4].Algorithm = window.AlignedWindow
		for i, l := range limits {
			for range 10 * lease.HotHits {
				_, err := b.Hit(t.Context(), key, l, 1)
				require.NoError(t, err)
			}
			require.Equal(t, i+1, b.Blocks().Keys)
		}
		before := b.Blocks().Held
		_, err := b.Set(t.Context(), key, limits[3], 7)
		require.NoError(t, err)
		require.Less(t, b.Blocks().Held, before)
		require.Greater(t, b.Blocks().Held, before/2)
	})
}

// A window that may be over a quarter earlier than it says has no blocks: they would be dead soon.
func TestImpreciseWindowsHaveNoBlocks(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		b := open(t, &network{Backend: store, imprecise: age, seen: new(windows)})
		for scale, want := range map[time.Duration]int{4*age - 4: 0, 4 * age: 1} {
			for range 2 * lease.HotHits {
				hit(t, b, scale, 1000, 1)
			}
			require.Equal(t, want, b.Blocks().Keys, scale)
			time.Sleep(time.Minute)
		}
	})
}

// What is idle is given back, and by Close everything.
func TestBlocksAreGivenBack(t *testing.T) {
	for _, closes := range []bool{false, true} {
		run(t, func(t *testing.T, store window.Backend) {
			b := open(t, store)
			heat(t, b, time.Hour, 10_000)
			if closes {
				require.NoError(t, b.Close())
				require.NoError(t, b.Close())
			} else {
				time.Sleep(5 * age)
			}
			require.EqualValues(t, 2*lease.HotHits, count(t, store, key), "only hits are counted")
			s := b.Blocks()
			require.Zero(t, uint64(s.Keys)+s.Held+s.Lost)
			require.NotZero(t, s.Returned)
			if closes {
				for range 2 * lease.HotHits { // these go to the store
					require.True(t, hit(t, b, time.Hour, 10_000, 1))
				}
				require.Zero(t, b.Blocks().Keys)
				require.EqualValues(t, 4*lease.HotHits, count(t, store, key))
			}
		})
	}
}

func TestDeniedHitsCountNothing(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		b := open(t, store)
		require.True(t, hit(t, b, time.Hour, 100, 95))
		for range 200 { // the key becomes hot
			require.False(t, hit(t, b, time.Hour, 100, 6))
		}
		for range 5 {
			require.True(t, hit(t, b, time.Hour, 100, 1))
		}
		require.False(t, hit(t, b, time.Hour, 100, 1))
		w, err := store.Peek(t.Context(), key, per(1, time.Hour), 0)
		require.NoError(t, err)
		require.Equal(t, uint64(100), w.Count)
	})
}

func TestOwnSetAndResetDropBlocks(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		b := open(t, store)
		heat(t, b, time.Hour, 10_000)
		require.NoError(t, b.Reset(t.Context(), key, per(1, time.Hour)))
		w, err := b.Hit(t.Context(), key, per(10_000, time.Hour), 1)
		require.NoError(t, err)
		require.LessOrEqual(t, w.Count, uint64(64), "a place of the new window")
		_, err = b.Set(t.Context(), key, per(1, time.Hour), 10_000)
		require.NoError(t, err)
		require.False(t, hit(t, b, time.Hour, 10_000, 1))
		n, err := b.Delete(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.True(t, hit(t, b, time.Hour, 10_000, 1))
	})
}

func TestSetOfOthersShowsWithinTheAge(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		b := open(t, store)
		heat(t, b, time.Hour, 1_000_000)
		for range 20 { // until blocks are large
			for range 1000 {
				hit(t, b, time.Hour, 1_000_000, 1)
			}
			time.Sleep(time.Millisecond)
		}
		_, err := store.Set(t.Context(), key, per(1, time.Hour), 1_000_000)
		require.NoError(t, err)
		require.True(t, hit(t, b, time.Hour, 1_000_000, 1), "a place of a block")
		for range 100 {
			time.Sleep(age / 100)
			hit(t, b, time.Hour, 1_000_000, 1)
		}
		require.False(t, hit(t, b, time.Hour, 1_000_000, 1))
		require.NoError(t, store.Reset(t.Context(), key, per(1, time.Hour)))
		time.Sleep(age)
		require.True(t, hit(t, b, time.Hour, 1_000_000, 1))
	})
}

func TestMaxKeysBoundsTheBlocks(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		b := open(t, store, lease.WithMaxKeys(3), lease.WithKeys(func(key string) bool { return key != "k0" }))
		for range 200 {
			for i := range 10 {
				_, err := b.Hit(t.Context(), fmt.Sprint("k", i), per(1000, time.Hour), 1)
				require.NoError(t, err)
			}
		}
		require.Equal(t, 3, b.Blocks().Keys)
		for i := range 10 {
			w, err := b.Peek(t.Context(), fmt.Sprint("k", i), per(1, time.Hour), 0)
			require.NoError(t, err)
			if i == 0 {
				require.Equal(t, uint64(200), w.Count, "a key that has no leases")
			}
			require.GreaterOrEqual(t, w.Count, uint64(200))
		}
		for _, o := range []lease.Option{lease.WithAge(-1), lease.WithMaxLease(-1), lease.WithMaxKeys(-1)} {
			require.Panics(t, func() { lease.New(store, o) })
		}
	})
}

// The largest numbers are as good as others, and a bound costs nothing that is not used.
func TestOptionsOfAnySize(t *testing.T) {
	const largest = math.MaxInt
	for name, opts := range map[string][]lease.Option{
		"0":       {lease.WithAge(0), lease.WithMaxLease(0), lease.WithMaxKeys(0)},
		"1":       {lease.WithAge(1), lease.WithMaxLease(1), lease.WithMaxKeys(1)},
		"largest": {lease.WithAge(largest), lease.WithMaxLease(largest), lease.WithMaxKeys(largest)},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, store window.Backend) {
				b := lease.New(store, opts...)
				defer b.Close()
				for range 100 {
					require.True(t, hit(t, b, time.Hour, 1000, 1))
				}
				time.Sleep(time.Hour - 1)
				for range 100 {
					require.True(t, hit(t, b, time.Hour, 1000, 1))
				}
				s := b.Blocks()
				require.LessOrEqual(t, s.Held, uint64(100))
				if name == "largest" {
					require.NotZero(t, s.Takes)
					require.Less(t, s.Takes, uint64(50))
				}
			})
		})
	}
}

func TestErrorsOfTheBackendAreReturned(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		n := &network{Backend: store, shortest: time.Millisecond, longest: 2 * time.Millisecond, seen: new(windows)}
		b := open(t, n)
		heat(t, b, time.Hour, 1_000_000)
		n.broken.Store(true)
		var failed error
		for range 1000 {
			if _, failed = b.Hit(t.Context(), key, per(1_000_000, time.Hour), 1); failed != nil {
				break
			}
		}
		require.ErrorIs(t, failed, errLost)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := b.Hit(ctx, key, per(1_000_000, time.Hour), 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(begun), 2*time.Millisecond)
		n.broken.Store(false)
		time.Sleep(time.Second)
		require.True(t, hit(t, b, time.Hour, 1_000_000, 1))
	})
}

// world is how processes and their network behave.
type world struct {
	processes, callers int
	limit              uint64
	scale              time.Duration
	shortest, longest  time.Duration // of a way
	pause              time.Duration // between the hits of a caller, at most
	lose               float64
	imprecise          time.Duration
	stumble            time.Duration // how long processes stop at most
	deaths             bool
	most               uint64 // places of a hit
	for_               time.Duration
}

// play lets processes make hits, and returns the windows.
func (w world) play(t *testing.T, store window.Backend) *windows {
	ws := new(windows)
	var all sync.WaitGroup
	end := time.Now().Add(w.for_)
	for range w.processes {
		n := &network{Backend: store, shortest: w.shortest, longest: w.longest, lose: w.lose, imprecise: w.imprecise, seen: ws}
		b := open(t, n)
		if w.stumble > 0 {
			b.Stumble(200, w.stumble)
		}
		death := end
		if w.deaths && rand.IntN(3) == 0 {
			death = time.Now().Add(rand.N(w.for_))
		}
		for range w.callers {
			all.Go(func() {
				for time.Now().Before(death) {
					k := 1 + rand.Uint64N(w.most)
					got, asked, err := b.HitAndSource(t.Context(), key, per(w.limit, w.scale), k)
					if err == nil && !got.Refused {
						ws.allow(k, got, asked)
					}
					if err != nil && !errors.Is(err, errLost) {
						t.Errorf("hit: %v", err)
					}
					time.Sleep(rand.N(w.pause))
				}
			})
		}
	}
	all.Wait()
	return ws
}

func TestProcessesTogetherNeverExceedTheLimit(t *testing.T) {
	for name, w := range map[string]world{
		"quick network":  {shortest: 100 * time.Microsecond, longest: 200 * time.Microsecond},
		"slow network":   {shortest: 10 * time.Millisecond, longest: 100 * time.Millisecond},
		"lost answers":   {shortest: time.Millisecond, longest: 10 * time.Millisecond, lose: 0.05},
		"imprecise ends": {shortest: time.Millisecond, longest: 10 * time.Millisecond, imprecise: 50 * time.Millisecond},
		"stops":          {shortest: time.Millisecond, longest: 10 * time.Millisecond, stumble: 300 * time.Millisecond},
		"deaths":         {shortest: time.Millisecond, longest: 10 * time.Millisecond, deaths: true},
		"everything": {shortest: 100 * time.Microsecond, longest: 50 * time.Millisecond, imprecise: 20 * time.Millisecond,
			stumble: 300 * time.Millisecond, lose: 0.02, deaths: true},
	} {
		for most, limit := range map[uint64]uint64{1: 20_000, 5: 2000} { // blocks are held when windows end, or all is spent
			t.Run(fmt.Sprintf("%s/%d", name, most), func(t *testing.T) {
				run(t, func(t *testing.T, store window.Backend) {
					w.processes, w.callers, w.limit, w.scale, w.most = 8, 4, limit, 500*time.Millisecond, most
					w.pause, w.for_ = 4*time.Millisecond, 5*time.Second
					ws := w.play(t, store)
					require.GreaterOrEqual(t, len(ws.all), 8)
					used := uint64(0)
					for i, s := range ws.all {
						require.LessOrEqual(t, s.allowed, w.limit, "window %d", i)
						used += s.allowed
					}
					require.Zero(t, ws.stray, "hits that were allowed while no window was open")
					t.Logf("%.1f %% used of %d windows", 100*float64(used)/float64(w.limit*uint64(len(ws.all))), len(ws.all))
				})
			})
		}
	}
}

func TestLimitsWithACalendarPassThrough(t *testing.T) {
	run(t, func(t *testing.T, store window.Backend) {
		b := open(t, store)
		day := window.Limit{Max: 10_000, Calendar: window.Day, Algorithm: window.CalendarWindow}
		for i := range uint64(10 * lease.HotHits) {
			_, err := b.Hit(t.Context(), key, day, 1)
			require.NoError(t, err)
			_, err = b.Take(t.Context(), key, day, 1)
			require.NoError(t, err)
			w, err := store.Peek(t.Context(), key, day, 0)
			require.NoError(t, err)
			require.Equal(t, 2*i+2, w.Count, "the count of the backend")
		}
		day.Max = 1
		w, err := b.Hit(t.Context(), key, day, 1)
		require.NoError(t, err)
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
		_, err := store.Hit(t.Context(), "other", l, 1)
		require.NoError(t, err)
		before := store.Stats().Stores[0].Calls
		for range 100 {
			w, err := b.Take(t.Context(), "hot", l, 1)
			require.NoError(t, err)
			require.Equal(t, window.Window{Count: l.Max, Refused: true, RetryAfter: time.Minute}, w)
		}
		require.LessOrEqual(t, store.Stats().Stores[0].Calls, before+101)
	})
}
