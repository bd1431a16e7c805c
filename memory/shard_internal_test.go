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
	for _, r := range b.shardOf(b.idOf("k").keyHash).cells {
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
