package limiter_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestShortestAndLongestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(8))
		l := testkit.Limiter[uint64](t, srv)
		for _, scale := range []time.Duration{time.Millisecond, time.Millisecond + 1, 49 * 365 * 24 * time.Hour} {
			require.Equal(t, 3, testkit.Hits(t, l, 5, "k", scale, 3), "%v", scale)
			res, err := l.Hit(t.Context(), "k", scale, 3)
			require.NoError(t, err)
			require.Equal(t, scale, res.RetryAfter, "%v", scale)
		}
		for _, scale := range []time.Duration{50 * 365 * 24 * time.Hour, 1 << 62} {
			_, err := l.Hit(t.Context(), "k", scale, 3)
			require.ErrorIs(t, err, throttr.ErrRange)
		}
		for _, scale := range []time.Duration{-time.Second, 0, time.Millisecond - 1, math.MaxInt64} {
			_, err := l.Hit(t.Context(), "k", scale, 3)
			require.ErrorIs(t, err, throttr.ErrScale)
		}
	})
}

func TestMemoryOfABackendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxWindows = 128
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithMaxWindows(maxWindows))
		l := testkit.NewRateLimit(backend)
		for i := range 4 * maxWindows {
			require.Equal(t, 1, testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 2))
			require.LessOrEqual(t, backend.Stats().Windows, 5*maxWindows)
		}
		require.Equal(t, 4*maxWindows, backend.Records().Records)
		_, err := l.Hit(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		require.NotErrorIs(t, err, throttr.ErrOverloaded)
		require.True(t, testkit.SafeToRetry(err))
		_, err = l.Set(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		for i := range 4 * maxWindows { // forgotten windows keep their counts, on the server
			require.Equal(t, 1, testkit.Hits(t, l, 2, fmt.Sprint(i), time.Minute, 2))
		}
		_, err = l.Get(t.Context(), "read only", time.Minute)
		require.NoError(t, err)
		requireRemoved(t, srv, idle[uint16](t, time.Minute))
		require.Zero(t, backend.Records().Records)
		require.LessOrEqual(t, backend.Stats().Windows, maxWindows)
		require.Equal(t, 1, testkit.Hits(t, l, 1, "one more", time.Minute, 2))
	})
}
