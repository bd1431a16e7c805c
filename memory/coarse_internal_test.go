package memory

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// hitWindow hits a window with a limit of 100, and returns its count and end.
func hitWindow(t *testing.T, b *Backend, key string, scale time.Duration, increment uint64) (uint64, time.Time) {
	t.Helper()
	w, err := Decide(b, t.Context(), true, key, LimitOf(window.FixedWindow, scale, 100), increment)
	require.NoError(t, err)
	return w.Count, w.ExpiresAt
}

// Hits that do not read the clock are counted like those that do, at any time.
func TestCoarseClockDoesNotChangeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coarse, exact := New(), New()
		defer coarse.Close()
		defer exact.Close()
		exact.clock.timer = nil
		random := rand.New(rand.NewPCG(1, 2))
		late := 0
		for range 20_000 {
			key, scale := string(rune('a'+random.IntN(5))), time.Duration(1+random.IntN(4))*700*time.Millisecond
			increment := random.Uint64N(4)
			got, gotEnd := hitWindow(t, coarse, key, scale, increment)
			want, wantEnd := hitWindow(t, exact, key, scale, increment)
			require.Equal(t, want, got)
			require.Equal(t, wantEnd, gotEnd)
			if last := coarse.clock.last.Load(); last != stopped && last < int64(time.Since(coarse.clock.origin)) {
				late++
			}
			if random.IntN(3) > 0 {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(20*time.Millisecond)))
			}
		}
		require.Greater(t, late, 5000)
	})
}

func TestCoarseClockTicksWhileInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		defer b.Close()
		last := func() time.Duration { return time.Duration(b.clock.last.Load()) }
		time.Sleep(time.Hour)
		require.EqualValues(t, stopped, last())
		hitWindow(t, b, "k", time.Minute, 1)
		require.EqualValues(t, stopped, last(), "a hit that opens a window does not start it")
		hitWindow(t, b, "k", time.Minute, 1)
		for range 20 {
			require.Equal(t, time.Since(b.clock.origin), last())
			time.Sleep(coarseTick / 2)
			hitWindow(t, b, "k", time.Minute, 1)
			time.Sleep(coarseTick / 2)
			synctest.Wait()
		}
		time.Sleep(coarseTick)
		synctest.Wait()
		require.EqualValues(t, stopped, last())

		hitWindow(t, b, "short", time.Second, 1)
		hitWindow(t, b, "short", time.Second, 1)
		time.Sleep(coarseTick)
		synctest.Wait()
		require.EqualValues(t, stopped, last(), "no hit uses it")
	})
}

// If the process was stopped, and the coarse clock with it, a window allows what remained of
// its limit and no more. No hit is denied because of it.
func TestLateCoarseClockAllowsNoMoreThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(WithCleanPeriod(24 * time.Hour))
		defer b.Close()
		hitWindow(t, b, "k", time.Minute, 89)
		hitWindow(t, b, "k", time.Minute, 1)
		b.clock.timer.Stop()
		_, old := hitWindow(t, b, "k", time.Minute, 1)
		time.Sleep(time.Hour)
		for i := range uint64(9) {
			n, end := hitWindow(t, b, "k", time.Minute, 1)
			require.Equal(t, 92+i, n)
			require.Equal(t, old, end)
		}
		n, end := hitWindow(t, b, "k", time.Minute, 1)
		require.EqualValues(t, 1, n)
		require.Equal(t, time.Now().Add(time.Minute), end)
	})
}
