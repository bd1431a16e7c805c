package limiter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

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
