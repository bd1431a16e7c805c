package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// A call looks at few records, also of a key with many limits.
func TestTheLimitsOfAKeyAreInManyCells(t *testing.T) {
	b := New()
	defer b.Close()
	for i := range 1000 {
		l := LimitOf(window.FixedWindow, time.Hour, 1)
		l.Name = fmt.Sprint(i)
		_, err := b.Take(t.Context(), "k", l, 1)
		require.NoError(t, err)
	}
	_, s := b.locate("k", &window.Limit{})
	for _, r := range s.cells {
		inCell := 0
		for ; r != nil; r = r.next {
			inCell++
		}
		require.Less(t, inCell, 50)
	}
}

// Aligned windows follow a wall clock that is set, within a second.
func TestTheWallClockIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		was := *c.last.Load() // as if the clock had been set since
		was.Day = was.Day.Add(time.Hour)
		c.last.Store(&was)
		time.Sleep(time.Second - 1)
		at := c.now()
		require.True(t, at.Day().Equal(time.Now().Add(time.Hour)))
		time.Sleep(time.Nanosecond)
		at = c.now()
		require.True(t, at.Day().Equal(time.Now()))
	})
}

// TestTimesOfDayAfterAReading: a clock goes on between two readings for one call, the second one for a time of day.
func TestTimesOfDayAfterAReading(t *testing.T) {
	const later = 200 * 365 * 24 * time.Hour
	shown := []time.Duration{0, 0, later, later + time.Minute} // two to make the clock, and two for a call
	c := newClock(func() time.Time {
		now := time.Unix(0, 0).Add(shown[0])
		shown = shown[1:]
		return now
	})
	at := c.now()
	require.True(t, at.Day().Equal(time.Unix(60, 0).Add(later)), at.Day())
	require.Equal(t, later+time.Minute, time.Duration(at.Now))
}

// TestAReadingIsForTimesBeforeIt: a clock that goes back makes a call allocate nothing.
func TestAReadingIsForTimesBeforeIt(t *testing.T) {
	shown := time.Unix(0, 0)
	c := newClock(func() time.Time {
		shown = shown.Add(-time.Hour)
		return shown
	})
	read := c.last.Load()
	at := c.now()
	require.Same(t, read, at.Read)
	require.True(t, at.Day().Equal(shown), at.Day())
}
