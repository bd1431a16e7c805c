package fixedwindow

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/slot"
)

// slotsUntil returns slots whose window is open until a time.
func slotsUntil(key string, until time.Time) *slots {
	l := fixed(time.Minute, 1)
	return &slots{countKey: keyOf(key, &l), janitor: &janitor{}, known: known{ok: true, Window: slot.Window{Times: slot.Times{Latest: until}}}}
}

func TestTableEvictsWhatIsLeastValuable(t *testing.T) {
	now := time.Now()
	var tb table
	tb.init(2 * tableShards) // two slots in each shard
	last := 0
	add := func(until time.Time) *slots { // to the shard of "busy"
		for {
			if last++; tb.shard(fmt.Sprint(last)) == tb.shard("busy") {
				return tb.add(slotsUntil(fmt.Sprint(last), until))
			}
		}
	}
	has := func(s *slots) bool { return tb.find(s.countKey) == s }
	busy := tb.add(slotsUntil("busy", now.Add(time.Hour)))
	require.True(t, busy.hold())
	over := add(now.Add(-time.Second))
	open := add(now.Add(time.Hour))
	require.Equal(t, []bool{false, true}, []bool{has(over), has(open)}, "its window is over")
	another := add(now.Add(time.Hour))
	require.Equal(t, []bool{true, false, true}, []bool{has(busy), has(open), has(another)}, "its window can be looked up again")

	for _, s := range []*slots{busy, another, slotsUntil("busy", now)} { // in use, open, and others of a count
		tb.remove(s)
		require.True(t, has(busy) && has(another))
	}
	busy.release(false)
	busy.forget()
	tb.remove(busy)
	require.False(t, has(busy))
}

// A call finds slots, which are evicted, and then the call opens a window. The next call has to find that window,
// with its ID.
func TestSlotsThatOpenAWindowStayInTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, inMemory(t))
		o.MaxWindows = 1
		b := start(t, o)
		l := fixed(time.Minute, 10)
		s, err := b.slotsFor(t.Context(), "k", &l, 1)
		require.NoError(t, err)
		b.table.remove(s)
		require.Zero(t, b.table.len())
		a := s.countHit(t.Context(), hit{max: 10, n: 1})
		require.NoError(t, a.err)
		require.Same(t, s, b.table.add(newSlots(b, *s.bands, s.countKey)), "a call that has not found them")
		require.Equal(t, 1, b.table.len())
		for i := range 3 {
			hits(t, b, 1, fmt.Sprint(i), l)
		}
		b.table.remove(s)
		again, _, err := b.Hit(t.Context(), "k", l, 1)
		require.NoError(t, err)
		require.Equal(t, a.window.ID, again.ID)
		require.EqualValues(t, 2, again.Count)
	})
}
