package fixedwindow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// nameOf returns a limit with a name.
func nameOf(l window.Limit, name string) window.Limit {
	l.Name = name
	return l
}

// What another client has counted without a name is ended, too, if the scale is given. All windows are ended at the same
// time.
func TestDeleteEndsWhatOthersHaveCountedWithoutAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b, other := client(t, srv), client(t, srv)
		minute, hour := fixed(time.Minute, 10), fixed(time.Hour, 10)
		counts := []struct {
			by    *Backend
			limit window.Limit
			left  uint64
		}{
			{b, nameOf(minute, "login"), 0}, {other, minute, 0}, {other, nameOf(minute, "other"), 1}, {b, hour, 1},
		}
		for _, c := range counts {
			hits(t, c.by, 1, "k", c.limit)
		}
		began := time.Now()
		n, _, err := b.Delete(t.Context(), "k", time.Minute, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Less(t, time.Since(began), 2*time.Second)
		for _, c := range counts {
			w, _, err := client(t, srv).Peek(t.Context(), "k", c.limit, 0)
			require.NoError(t, err)
			require.Equal(t, c.left, w.Count, "%v", c.limit)
		}
	})
}

// RateLimit checks arguments before it calls a backend. Other callers get the same errors.
func TestNumbersThatNoCounterHolds(t *testing.T) {
	ctx, b, l := t.Context(), client(t, inMemory(t)), fixed(time.Minute, 10)
	for _, n := range []uint64{1 << 16, 1 << 63} {
		_, _, hit := b.Hit(ctx, "k", l, n)
		_, _, take := b.Take(ctx, "k", l, n)
		_, _, peek := b.Peek(ctx, "k", l, n)
		_, _, set := b.Set(ctx, "k", l, n)
		_, _, charge := b.Charge(ctx, "k", l, 1<<63)
		_, _, end := b.Delete(ctx, "k", time.Hour+1)
		for _, err := range []error{hit, take, peek, set, charge, end} {
			require.ErrorIs(t, err, window.ErrRange)
		}
	}
}

// Of takes that are made in turn, the server of the second one goes away after the first one has counted.
func TestTakesInTurnThatFailMayHaveCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := inMemory(t)
		first := inMemory(t, mockserver.WithObserver(func(e mockserver.Exec) {
			if _, ok := ParseName([]byte(e.Key)); ok && e.Op == codec.OpInsert {
				away.Refuse(true)
				away.Disconnect()
			}
		}))
		b := start(t, options(t, first, away))
		l := fixed(time.Minute, 10)
		granted, sent, err := b.TakeAll(t.Context(), []window.Take{l.For("a", 1), l.For("b", 3)}, make([]window.Window, 2))
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.False(t, granted)
		require.True(t, sent)
		w, _, err := b.Peek(t.Context(), "b", l, 0)
		require.NoError(t, err)
		require.Zero(t, w.Count, "it was given back")
	})
}
