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

// taker makes calls of a client that must succeed, about the key "k" and a scale.
type taker struct {
	*testing.T
	*Backend
	scale time.Duration
}

// takerOf returns a client of its own. It remembers no denials.
func takerOf(t *testing.T, srv *mockserver.Server, scale time.Duration) taker {
	o := options(t, srv)
	o.DenialMemory = -1
	return taker{t, start(t, o), scale}
}

// granted makes a take that must be granted, and returns the ID of its window.
func (c taker) granted(limit, n uint64) (id int64) {
	c.Helper()
	w, _, err := c.Backend.Take(c.Context(), "k", fixed(c.scale, limit), n)
	require.NoError(c, err)
	require.False(c, w.Refused, "%+v", w)
	return w.ID
}

func (c taker) giveBack(id int64, n uint64) (given bool) {
	c.Helper()
	given, _, err := c.Backend.GiveBack(c.Context(), "k", fixed(c.scale, 1), n, id)
	require.NoError(c, err)
	return given
}

// count returns the count of the window.
func (c taker) count() uint64 {
	c.Helper()
	w, _, err := c.Backend.Peek(c.Context(), "k", fixed(c.scale, 1), 0)
	require.NoError(c, err)
	return w.Count
}

// What is given back to a fixed window is in it still: in another one nothing changes, and no counter wraps
// (H3).
func TestAGiveBackToAFixedWindowThatHasChanged(t *testing.T) {
	const scale = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		one := takerOf(t, srv, scale)
		first := one.granted(10, 5)
		for _, name := range srv.Keys() { // somebody else has given back
			if quota, _ := srv.Counter(name); quota == math.MaxUint16-5 {
				ttl, _ := srv.TTL(name)
				srv.Set(name, math.MaxUint16-2, ttl)
			}
		}
		require.False(t, one.giveBack(first, 5))
		require.EqualValues(t, 2, one.count())
		require.True(t, one.giveBack(first, 1))
		require.EqualValues(t, 1, one.count())
		time.Sleep(scale)
		second := one.granted(10, 5)
		require.False(t, one.giveBack(first, 1), "the window is over")
		require.EqualValues(t, 5, one.count())
		require.True(t, one.giveBack(second, 1))
	})
}

// A refused take is given back even if its caller does not wait for that. What follows finds the room.
func TestCallersDoNotWaitForGiveBacksLongerThanTheirContext(t *testing.T) {
	const scale, patience = time.Hour, 200 * time.Millisecond
	for name, call := range map[string]func(ctx context.Context, b *Backend) (refused bool, err error){
		"Take": func(ctx context.Context, b *Backend) (bool, error) {
			w, _, err := b.Take(ctx, "k", fixed(scale, 10), 5)
			return w.Refused, err
		},
		"TakeAll": func(ctx context.Context, b *Backend) (bool, error) {
			takes := []window.Take{fixed(scale, 10).For("a", 5), fixed(scale, 10).For("k", 5)}
			granted, _, err := b.TakeAll(ctx, takes, make([]window.Window, 2))
			return !granted, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				var backends []*Backend
				for range 2 {
					o := options(t, srv)
					backends = append(backends, start(t, o))
				}
				b, other := backends[0], backends[1]
				for _, key := range []string{"a", "k"} {
					w, _, err := b.Take(t.Context(), key, fixed(scale, 10), 1)
					require.NoError(t, err)
					require.False(t, w.Refused)
				}
				w, _, err := other.Take(t.Context(), "k", fixed(scale, 10), 6) // b does not know of it
				require.NoError(t, err)
				require.False(t, w.Refused)

				remove := srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: skipOf(name), Delay: 400 * time.Millisecond})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				began := time.Now()
				refused, err := call(ctx, b)
				require.NoError(t, err)
				require.True(t, refused)
				require.LessOrEqual(t, time.Since(began), patience)
				time.Sleep(10 * time.Second)
				remove()
				w, _, err = other.Peek(t.Context(), "k", fixed(scale, 1), 0)
				require.NoError(t, err)
				require.EqualValues(t, 7, w.Count)
				w, _, err = other.Peek(t.Context(), "a", fixed(scale, 1), 0)
				require.NoError(t, err)
				require.EqualValues(t, 1, w.Count)
			})
		})
	}
}

// skipOf returns how many UPDATEs a call makes before it gives back.
func skipOf(call string) int {
	if call == "TakeAll" {
		return 2
	}
	return 1
}
