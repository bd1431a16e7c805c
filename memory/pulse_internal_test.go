package memory

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// count hits a window within a limit of 100, as a RateLimit does, and returns its count and end.
func count(t *testing.T, b *Backend, key string, scale time.Duration, increment uint64) (uint64, time.Time) {
	t.Helper()
	n, _, _, end, err := (*counter)(b).Count(t.Context(), key, scale, 100, increment)
	require.NoError(t, err)
	return n, end
}

// Hits that do not read the clock are counted as those that do, whenever they come.
func TestThePulseChangesNoCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pulsing, reading := New(), New()
		defer pulsing.Close()
		defer reading.Close()
		reading.pulse.timer = nil
		random := rand.New(rand.NewPCG(1, 2))
		inShort := 0
		for range 20_000 {
			key, scale := string(rune('a'+random.IntN(5))), time.Duration(1+random.IntN(4))*700*time.Millisecond
			increment := random.Uint64N(4)
			got, gotEnd := count(t, pulsing, key, scale, increment)
			want, wantEnd := count(t, reading, key, scale, increment)
			require.Equal(t, want, got)
			require.Equal(t, wantEnd, gotEnd)
			if last := pulsing.pulse.last.Load(); last != atRest && last < int64(time.Since(pulsing.origin)) {
				inShort++
			}
			if random.IntN(3) > 0 {
				<-time.After(time.Duration(random.ExpFloat64() * float64(20*time.Millisecond)))
			}
		}
		require.Greater(t, inShort, 5000)
	})
}

func TestThePulseBeatsWhileItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		defer b.Close()
		last := func() time.Duration { return time.Duration(b.pulse.last.Load()) }
		<-time.After(time.Hour)
		require.EqualValues(t, atRest, last())
		count(t, b, "k", time.Minute, 1)
		require.EqualValues(t, atRest, last(), "who opens a window needs none")
		count(t, b, "k", time.Minute, 1)
		for range 20 {
			require.Equal(t, time.Since(b.origin), last())
			<-time.After(beat / 2)
			count(t, b, "k", time.Minute, 1)
			<-time.After(beat / 2)
			synctest.Wait()
		}
		<-time.After(beat)
		synctest.Wait()
		require.EqualValues(t, atRest, last())

		count(t, b, "short", time.Second, 1)
		count(t, b, "short", time.Second, 1)
		<-time.After(beat)
		synctest.Wait()
		require.EqualValues(t, atRest, last(), "nothing makes do with it")
	})
}

// Where the process stood still, and the pulse with it, a window lets in what it had left,
// and no more, and nobody is denied for it.
func TestAPulseThatFailsAllowsNoMoreThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(WithCleanPeriod(0))
		defer b.Close()
		count(t, b, "k", time.Minute, 89)
		count(t, b, "k", time.Minute, 1)
		b.pulse.timer.Stop()
		_, old := count(t, b, "k", time.Minute, 1)
		<-time.After(time.Hour)
		for i := range uint64(9) {
			n, end := count(t, b, "k", time.Minute, 1)
			require.Equal(t, 92+i, n)
			require.Equal(t, old, end)
		}
		n, end := count(t, b, "k", time.Minute, 1)
		require.EqualValues(t, 1, n)
		require.Equal(t, time.Now().Add(time.Minute), end)
	})
}

// What a window tells is of the last beat at worst, and in order.
func TestUpdatesAreToldToABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		defer b.Close()
		updated := time.Time{}
		for i := range 100 {
			count(t, b, "k", time.Hour, 0)
			w, err := b.Get(t.Context(), "k", time.Hour)
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(w.UpdatedAt), beat)
			require.False(t, w.UpdatedAt.Before(updated) || w.UpdatedAt.Before(w.StartedAt), i)
			updated = w.UpdatedAt
			<-time.After(17 * time.Millisecond)
		}
	})
}
