package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Aligned windows follow a wall clock that is set, within a second.
func TestTheWallClockIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		was := *c.reference.Load() // as if the clock had been set since
		was.Day = was.Day.Add(time.Hour)
		c.reference.Store(&was)
		time.Sleep(time.Second - 1)
		at := c.now()
		require.True(t, at.Day.Equal(time.Now().Add(time.Hour)))
		time.Sleep(time.Nanosecond)
		at = c.now()
		require.True(t, at.Day.Equal(time.Now()))
	})
}
