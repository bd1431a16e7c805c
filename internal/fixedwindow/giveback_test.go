package fixedwindow

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// What is given back to a fixed window is in it still: in another one nothing changes, and no counter wraps
// (H3).
func TestAGiveBackToAFixedWindowThatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b, l := client(t, srv), fixed(10*time.Second, 10)
		giveBack := func(id int64, n uint64) bool {
			given, _, err := b.GiveBack(t.Context(), "k", l, n, id)
			require.NoError(t, err)
			return given
		}
		first := taken(t, b, "k", l, 5).ID
		name := windowKeys(srv)[0]
		ttl, _ := srv.TTL(name)
		srv.Set(name, math.MaxUint16-2, ttl) // somebody else has given back
		require.False(t, giveBack(first, 5))
		require.EqualValues(t, 2, countOf(t, b, "k", l))
		require.True(t, giveBack(first, 1))
		require.EqualValues(t, 1, countOf(t, b, "k", l))
		time.Sleep(l.Scale)
		second := taken(t, b, "k", l, 5).ID
		require.False(t, giveBack(first, 1), "the window is over")
		require.EqualValues(t, 5, countOf(t, b, "k", l))
		require.True(t, giveBack(second, 1))
	})
}

// A refused take is given back even if its caller does not wait for that. What follows finds the room.
func TestCallersDoNotWaitForGiveBacksLongerThanTheirContext(t *testing.T) {
	const patience = 200 * time.Millisecond
	l := fixed(time.Hour, 10)
	for name, c := range map[string]struct {
		call    func(ctx context.Context, b *Backend) (refused bool, err error)
		updates int // before it gives back
	}{
		"Take": {func(ctx context.Context, b *Backend) (bool, error) {
			w, _, err := b.Take(ctx, "k", l, 5)
			return w.Refused, err
		}, 1},
		"TakeAll": {func(ctx context.Context, b *Backend) (bool, error) {
			granted, _, err := b.TakeAll(ctx, []window.Take{l.For("a", 5), l.For("k", 5)}, make([]window.Window, 2))
			return !granted, err
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				b, other := client(t, srv), client(t, srv)
				taken(t, b, "a", l, 1)
				taken(t, b, "k", l, 1)
				taken(t, other, "k", l, 6) // b does not know of it
				remove := srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: c.updates, Delay: 2 * patience})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				began := time.Now()
				refused, err := c.call(ctx, b)
				require.NoError(t, err)
				require.True(t, refused)
				require.LessOrEqual(t, time.Since(began), patience)
				time.Sleep(10 * time.Second)
				remove()
				require.EqualValues(t, 7, countOf(t, other, "k", l))
				require.EqualValues(t, 1, countOf(t, other, "a", l))
			})
		})
	}
}
