package fixedwindow

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/window"
)

// nameOf returns a limit with a name.
func nameOf(l window.Limit, name string) window.Limit {
	l.Name = name
	return l
}

// Limits of one key count for themselves if their names, scales or algorithms differ, and together if only
// Max does. So it is for every client.
func TestCountsAreThoseOfKeyNameScaleAndAlgorithm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		clients := []*Backend[uint16]{client[uint16](t, srv), client[uint16](t, srv)}
		alignTo(time.Hour)
		var all []window.Limit
		for _, a := range algorithms {
			for _, name := range []string{"", "login", "5:login", strings.Repeat("x", 64)} {
				for _, scale := range []time.Duration{time.Minute, time.Hour} {
					all = append(all, nameOf(limitOf(a, scale, 1000), name))
				}
			}
		}
		keys := []string{"k", ":k", "5:login:k", "login:k", strings.Repeat("k", 100)}
		for i, l := range all {
			for j, key := range keys {
				for range 2 {
					_, _, err := clients[(i+j)%2].Take(t.Context(), key, l, uint64(1+i*len(keys)+j))
					require.NoError(t, err)
				}
			}
		}
		for i, l := range all {
			l.Max = 7
			for j, key := range keys {
				for _, b := range clients {
					w, _, err := b.Peek(t.Context(), key, l, 0)
					require.NoError(t, err)
					require.EqualValues(t, 2*(1+i*len(keys)+j), w.Count, "%v of %s", l, key)
					require.Equal(t, w.Count > 7, w.Refused)
				}
			}
		}
		require.Equal(t, len(all)*len(keys), clients[0].Stats().Windows+clients[1].Stats().Windows)
	})
}

// What another client has counted without a name is ended, too, if the scale is given.
func TestDeleteEndsAllNamesAndAlgorithms(t *testing.T) {
	for name, c := range map[string]struct {
		scales []time.Duration
		n      int
		left   []int // what is left of the limits
	}{
		"of a scale":    {[]time.Duration{time.Minute, time.Minute}, 5, []int{1, 5}},
		"of two scales": {[]time.Duration{time.Minute, time.Hour}, 6, []int{5}},
		"of all scales": {nil, 4, []int{5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				b, other := client[uint16](t, srv), client[uint16](t, srv)
				alignTo(time.Hour)
				of := []window.Limit{
					0: fixed(time.Minute, 10), 1: fixed(time.Hour, 10),
					2: nameOf(limitOf(window.AlignedWindow, time.Minute, 10), "login"), 3: nameOf(fixed(time.Minute, 10), "login"),
					// of another client
					4: fixed(time.Minute, 10), 5: nameOf(fixed(time.Minute, 10), "other"),
					6: limitOf(window.AlignedWindow, time.Minute, 10), 7: limitOf(window.SlidingWindow, time.Minute, 10),
				}
				for i, l := range of {
					hits(t, []*Backend[uint16]{b, other}[i/4], 1, "k", l)
				}
				hits(t, b, 1, "l", of[0])
				n, _, err := b.Delete(t.Context(), "k", c.scales...)
				require.NoError(t, err)
				require.Equal(t, c.n, n)
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
	_, _, err := b.Delete(t.Context(), "k", time.Minute, 60)
	require.ErrorIs(t, err, window.ErrScale)
	_, _, err = b.Delete(t.Context(), "k", time.Hour+1)
	require.ErrorIs(t, err, window.ErrRange)
}

// Takes of all algorithms are made together, and those of one count are one.
func TestTakeAllOfAllAlgorithms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := client[uint16](t, inMemory(t))
		alignTo(time.Hour)
		of := func(name string, a window.Algorithm, most uint64) window.Limit {
			return nameOf(limitOf(a, time.Hour, most), name)
		}
		takes := []window.Take{
			of("", window.FixedWindow, 10).For("k", 2), of("", window.AlignedWindow, 10).For("k", 3),
			of("login", window.SlidingWindow, 5).For("k", 4), of("", window.FixedWindow, 4).For("k", 1),
		}
		windows := make([]window.Window, len(takes))
		takeAll := func(granted bool, counts []uint64, refused []bool) {
			t.Helper()
			got, _, err := b.TakeAll(t.Context(), takes, windows)
			require.NoError(t, err)
			require.Equal(t, granted, got)
			for i, w := range windows {
				require.Equal(t, counts[i], w.Count, "%d", i)
				require.Equal(t, refused[i], w.Refused, "%d", i)
				require.Equal(t, refused[i], w.RetryAfter > 0, "%d", i)
			}
		}
		takeAll(true, []uint64{3, 3, 4, 3}, make([]bool, 4))
		for range 2 { // the second one is refused from memory
			takeAll(false, []uint64{3, 3, 4, 3}, []bool{true, false, true, true})
		}
		takes[0].N, takes[2].N, takes[3].N = 0, 1, 1
		takeAll(true, []uint64{4, 6, 5, 4}, make([]bool, 4))
		takes[2].N = 6
		takeAll(false, []uint64{4, 6, 5, 4}, []bool{true, false, true, true})
		require.Equal(t, window.Never, windows[2].RetryAfter)
	})
}

func TestCheckIsTheErrorOfEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := client[uint16](t, inMemory(t))
		valid := fixed(time.Minute, 10)
		hits(t, b, 1, "k", valid) // known
		for _, change := range []func(*window.Limit){
			func(l *window.Limit) { l.Max = 1 << 16 }, func(l *window.Limit) { l.Max = 1 << 63 }, func(l *window.Limit) { l.Burst = 1 },
			func(l *window.Limit) { l.Scale = 60 }, func(l *window.Limit) { l.Scale = time.Hour + 1 }, func(l *window.Limit) { l.Algorithm = 0 },
			func(l *window.Limit) { l.Algorithm = window.TokenBucket }, func(l *window.Limit) { l.Algorithm = window.SlidingLog },
			func(l *window.Limit) { l.Algorithm = 99 }, func(l *window.Limit) { l.Name = "\n" },
			func(l *window.Limit) { l.Algorithm, l.Scale = window.SlidingWindow, 1<<62 },
		} {
			l := valid
			change(&l)
			_, want := b.Check(l)
			require.Error(t, want, "%v", l)
			for name, err := range callsWith(t.Context(), b, l) {
				require.EqualError(t, err, want.Error(), name)
			}
		}
		for a, precision := range map[window.Algorithm]time.Duration{
			window.FixedWindow: time.Second, window.AlignedWindow: 0, window.SlidingWindow: 0,
		} {
			traits, err := b.Check(limitOf(a, time.Minute, 10))
			require.NoError(t, err)
			require.Equal(t, window.Traits{MaxCount: 65535, Precision: precision}, traits)
		}
	})
	for _, a := range []window.Algorithm{window.TokenBucket, window.SlidingLog} {
		err := CheckAlgorithm(a)
		require.ErrorIs(t, err, window.ErrUnsupported)
		require.ErrorContains(t, err, a.String())
		require.ErrorContains(t, err, window.SlidingWindow.String())
	}
}

// callsWith returns the errors of all calls with a limit.
func callsWith(ctx context.Context, b *Backend[uint16], l window.Limit) map[string]error {
	_, _, hit := b.Hit(ctx, "k", l, 1)
	_, _, take := b.Take(ctx, "k", l, 1)
	_, _, charge := b.Charge(ctx, "k", l, 1)
	_, _, peek := b.Peek(ctx, "k", l, 0)
	_, _, set := b.Set(ctx, "k", l, 1)
	_, _, takeAll := b.TakeAll(ctx, []window.Take{fixed(time.Minute, 10).For("k", 1), l.For("k", 1)}, make([]window.Window, 2))
	_, _, giveBack := b.GiveBack(ctx, "k", l, 1, 1)
	_, reset := b.Reset(ctx, "k", l)
	return map[string]error{
		"Hit": hit, "Take": take, "Charge": charge, "Peek": peek, "Set": set, "TakeAll": takeAll, "GiveBack": giveBack, "Reset": reset,
	}
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
