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

// What another client has counted without a name is ended, too, if the scale is given. All windows are ended at the same
// time.
func TestDeleteEndsWhatOthersHaveCountedWithoutAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b, other := client(t, srv), client(t, srv)
		counts := []struct {
			by    *Backend
			name  string
			scale time.Duration
			left  uint64
		}{
			{b, "login", time.Minute, 0}, {other, "", time.Minute, 0}, {other, "other", time.Minute, 1}, {b, "", time.Hour, 1},
		}
		limitOf := func(i int) window.Limit {
			return window.Limit{Name: counts[i].name, Max: 10, Scale: counts[i].scale, Algorithm: window.FixedWindow}
		}
		for i, c := range counts {
			hits(t, c.by, 1, "k", limitOf(i))
		}
		began := time.Now()
		n, _, err := b.Delete(t.Context(), "k", time.Minute, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Less(t, time.Since(began), 2*time.Second)
		for i, c := range counts {
			require.Equal(t, c.left, countOf(t, client(t, srv), "k", limitOf(i)), "%+v", c)
		}
	})
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
		require.Zero(t, countOf(t, b, "b", l), "it was given back")
	})
}
