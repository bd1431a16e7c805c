package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWallClockIsReadOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		defer b.Close()
		end := time.Now().Add(time.Hour)
		hit := func() time.Time {
			w, err := b.Hit(t.Context(), "k", time.Hour, 10, 1)
			require.NoError(t, err)
			require.Equal(t, time.Until(end), w.Left)
			return w.ExpiresAt
		}
		require.Equal(t, end, hit())
		s, _ := b.locate("k", time.Hour)
		s.reference.time = s.reference.time.Add(-time.Minute) // as if the wall clock had been set
		s.lastEnd = s.reference
		time.Sleep(time.Second - 1)
		require.Equal(t, end.Add(-time.Minute), hit())
		time.Sleep(time.Nanosecond)
		require.Equal(t, end, hit())
	})
}
