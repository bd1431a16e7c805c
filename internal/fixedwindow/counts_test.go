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

// What another client has counted without a name is ended, too, if the scale is given.
func TestDeleteEndsAllNames(t *testing.T) {
	for name, c := range map[string]struct {
		scales []time.Duration
		n      int
		left   []int // what is left of the limits
	}{
		"of a scale":    {[]time.Duration{time.Minute, time.Minute}, 2, []int{1, 4, 5}},
		"of two scales": {[]time.Duration{time.Minute, time.Hour}, 3, []int{4, 5}},
		"of all scales": {nil, 3, []int{4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				b, other := client[uint16](t, srv), client[uint16](t, srv)
				of := []window.Limit{
					0: fixed(time.Minute, 10), 1: fixed(time.Hour, 10),
					2: nameOf(fixed(time.Minute, 10), "login"),
					// of another client
					3: fixed(time.Minute, 10), 4: nameOf(fixed(time.Minute, 10), "other"), 5: fixed(10*time.Second, 10),
				}
				for i, l := range of {
					hits(t, []*Backend[uint16]{b, other}[i/3], 1, "k", l)
				}
				hits(t, b, 1, "l", of[0])
				began := time.Now()
				n, _, err := b.Delete(t.Context(), "k", c.scales...)
				require.NoError(t, err)
				require.Equal(t, c.n, n)
				require.Less(t, time.Since(began), 2*time.Second, "they are ended at the same time")
				for i, l := range of[1:] {
					w, _, err := client[uint16](t, srv).Peek(t.Context(), "k", l, 0)
					require.NoError(t, err)
					left := false
					for _, one := range c.left {
						left = left || one == i+1
					}
					require.Equal(t, left, w.Count > 0, "%d: %v", i+1, l)
				}
				w, _, err := b.Peek(t.Context(), "l", of[0], 0)
				require.NoError(t, err)
				require.EqualValues(t, 1, w.Count)
			})
		})
	}
	b := client[uint16](t, inMemory(t))
	for _, scale := range []time.Duration{0, -1, 60, time.Millisecond - 1} {
		_, _, err := b.Delete(t.Context(), "k", time.Minute, scale)
		require.ErrorIs(t, err, window.ErrScale)
	}
	_, _, err := b.Delete(t.Context(), "k", time.Hour+1)
	require.ErrorIs(t, err, window.ErrRange)
}

func TestNumbersThatNoCounterHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := client[uint16](t, inMemory(t))
		valid := fixed(time.Minute, 10)
		hits(t, b, 1, "k", valid) // known
		for _, n := range []uint64{1 << 16, 1 << 63} {
			_, _, hit := b.Hit(t.Context(), "k", valid, n)
			_, _, take := b.Take(t.Context(), "k", valid, n)
			_, _, peek := b.Peek(t.Context(), "k", valid, n)
			_, _, set := b.Set(t.Context(), "k", valid, n)
			_, _, charge := b.Charge(t.Context(), "k", valid, n)
			for _, err := range []error{hit, take, peek, set} {
				require.ErrorIs(t, err, window.ErrRange)
			}
			require.Equal(t, n == 1<<63, charge != nil, "what no counter holds fills it")
		}
		traits, err := b.Check(valid)
		require.NoError(t, err)
		require.Equal(t, window.Traits{MaxCount: 65535, Precision: time.Second}, traits)
	})
}

// A limit with another algorithm is an error of every call, also when there is a fixed window of the same key and
// scale.
func TestOnlyFixedWindowsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := client[uint16](t, inMemory(t))
		hits(t, b, 1, "k", fixed(time.Minute, 10))
		for _, a := range []window.Algorithm{window.AlignedWindow, window.SlidingWindow, window.SlidingLog, window.TokenBucket} {
			l, ctx := limitOf(a, time.Minute, 10), t.Context()
			_, check := b.Check(l)
			_, _, hit := b.Hit(ctx, "k", l, 1)
			_, _, take := b.Take(ctx, "k", l, 1)
			_, _, peek := b.Peek(ctx, "k", l, 1)
			_, _, set := b.Set(ctx, "k", l, 1)
			_, _, charge := b.Charge(ctx, "k", l, 1)
			_, reset := b.Reset(ctx, "k", l)
			_, _, all := b.TakeAll(ctx, []window.Take{fixed(time.Minute, 10).For("k", 1), l.For("k", 1)}, make([]window.Window, 2))
			_, _, giveBack := b.GiveBack(ctx, "k", l, 1, 1)
			for i, err := range []error{check, hit, take, peek, set, charge, reset, all, giveBack} {
				require.ErrorIs(t, err, window.ErrUnsupported, "%v, %d", a, i)
				require.ErrorContains(t, err, a.String())
			}
		}
		w, _, err := b.Peek(t.Context(), "k", fixed(time.Minute, 10), 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, w.Count)
	})
}

// Takes that are made together and refused say so, whoever has filled the window.
func TestTakesThatAreRefusedTogetherAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, requests := observed(t)
		b, other := client[uint16](t, srv), client[uint16](t, srv)
		l := fixed(time.Minute, 10)
		takes := []window.Take{l.For("k", 2), nameOf(l, "login").For("k", 2), nameOf(l, "search").For("k", 2)}
		windows := make([]window.Window, len(takes))
		for range 2 {
			granted, _, err := b.TakeAll(t.Context(), takes, windows)
			require.NoError(t, err)
			require.True(t, granted)
		}
		hits(t, other, 5, "k", nameOf(l, "login"))
		requests.take()
		granted, _, err := b.TakeAll(t.Context(), takes, windows)
		require.NoError(t, err)
		require.False(t, granted)
		require.Equal(t, 6, requests.take()[codec.OpUpdate], "they were counted, and given back")
		for i, w := range windows {
			require.Equal(t, i == 1, w.Refused, "%d", i)
			require.Equal(t, []uint64{4, 9, 4}[i], w.Count)
			if w.Refused {
				require.Equal(t, w.Left, w.RetryAfter)
			}
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
		b := start(t, options[uint16](t, first, away))
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
