package memory

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// A shard has as many cells as records, or more, and after fit not many more.
func TestATableFitsItsRecords(t *testing.T) {
	l := LimitOf(window.FixedWindow, time.Second, 1)
	var s shard
	var records []*record
	for i := range 1000 {
		records = append(records, s.insert(id{hash: uint64(i) * golden, key: strconv.Itoa(i)}, &l))
		require.LessOrEqual(t, s.records, len(s.cells))
	}
	for _, r := range records {
		s.remove(r)
		s.fit()
		require.LessOrEqual(t, s.records, len(s.cells))
		require.LessOrEqual(t, len(s.cells), max(fewestCells, 4*s.records+4))
	}
}

// Aligned windows follow a wall clock that is set, within a second.
func TestTheWallClockIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		was := *c.reference.Load() // as if the clock had been set since
		was.Read = was.Read.Add(time.Hour)
		c.reference.Store(&was)
		time.Sleep(time.Second - 1)
		at := c.now()
		require.True(t, at.Day().Equal(time.Now().Add(time.Hour)))
		time.Sleep(time.Nanosecond)
		at = c.now()
		require.True(t, at.Day().Equal(time.Now()))
	})
}
