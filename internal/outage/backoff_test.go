package outage_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/outage"
)

const forever = time.Duration(1<<63 - 1)

// requireNear fails the test unless a pause is want, give or take a tenth.
func requireNear(t *testing.T, want, pause time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, pause, want-want/10)
	require.LessOrEqual(t, pause, want+want/10)
}

func TestPausesDoubleUpToTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := outage.NewBackoff(100*time.Millisecond, time.Second)
		for range 2 {
			for _, want := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000} {
				start := time.Now()
				require.NoError(t, b.Wait(t.Context(), nil))
				requireNear(t, want*time.Millisecond, time.Since(start))
			}
			b.Reset()
		}
	})
}

func TestPausesHaveJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[outage.NewBackoff(time.Second, time.Second).Next()] = true
	}
	require.Greater(t, len(seen), 50)
}

func TestExtremePausesDoNotOverflow(t *testing.T) {
	for _, c := range []struct{ min, max, first, last time.Duration }{
		{time.Hour, time.Second, time.Second, time.Second},
		{forever, time.Second, time.Second, time.Second},
		{time.Second, forever, time.Second, forever / 2},
		{forever, forever, forever / 2, forever / 2},
		{1, 1, 1, 1},
		{1, forever, 1, forever / 2},
	} {
		b := outage.NewBackoff(c.min, c.max)
		requireNear(t, c.first, b.Next())
		for range 100 {
			require.GreaterOrEqual(t, b.Next(), time.Duration(0))
		}
		requireNear(t, c.last, b.Next())
	}
}

// An attempt that finds nobody there costs next to nothing.
func TestPausesDoNotGrowWhileNobodyListens(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "socket")
	_, err := net.Dial("unix", missing)
	for _, nobody := range []error{err, fmt.Errorf("dialing: %w", syscall.ECONNREFUSED)} {
		synctest.Test(t, func(t *testing.T) {
			b := outage.NewBackoff(80*time.Millisecond, time.Minute)
			seen := map[time.Duration]bool{}
			for range 100 {
				start := time.Now()
				require.NoError(t, b.Wait(t.Context(), nobody))
				pause := time.Since(start)
				require.GreaterOrEqual(t, pause, 40*time.Millisecond)
				require.LessOrEqual(t, pause, 80*time.Millisecond)
				seen[pause] = true
			}
			require.Greater(t, len(seen), 50, "they have jitter")
			require.NoError(t, b.Wait(t.Context(), io.EOF))
			requireNear(t, 160*time.Millisecond, b.Next())
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, outage.NewBackoff(time.Hour, time.Hour).Wait(ctx, nil), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, outage.SleepUntil(t.Context(), start, nil), "a time that is over")
		for range 50 {
			require.ErrorIs(t, outage.SleepUntil(ctx, start, nil), context.DeadlineExceeded)
		}
	})
}
