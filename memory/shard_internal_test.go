package memory

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// A table has as many cells as records, or more, and after fit not many more.
func TestATableFitsItsRecords(t *testing.T) {
	l := LimitOf(window.FixedWindow, time.Second, 1)
	var table table
	var records []*record
	for i := range 1000 {
		records = append(records, table.insert(id{hash: uint64(i) * 0x9e3779b97f4a7c15, key: strconv.Itoa(i)}, &l))
		require.LessOrEqual(t, table.len, len(table.cells))
	}
	for _, r := range records {
		table.remove(r)
		table.fit()
		require.LessOrEqual(t, table.len, len(table.cells))
		require.LessOrEqual(t, len(table.cells), max(fewestCells, 4*table.len+4))
	}
}

// Aligned windows follow a wall clock that is set, within a second.
func TestTheWallClockIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.init(nil)
		was := *c.reference.Load() // as if the clock had been set since
		was.wall += int64(time.Hour)
		was.sec += 3600
		c.reference.Store(&was)
		time.Sleep(time.Second - 1)
		require.Equal(t, time.Now().Unix()+3600, c.now().sec)
		time.Sleep(time.Nanosecond)
		at := c.now()
		require.Equal(t, []int64{time.Now().Unix(), at.mono}, []int64{at.sec, at.wall})
	})
}
