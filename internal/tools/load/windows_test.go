package load_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/internal/tools/load"
)

func TestRequestsAreThoseOfInfo(t *testing.T) {
	n := func(total uint64) codec.Count { return codec.Count{Total: total, PerMinute: 99} }
	r := load.RequestsOf(codec.InfoRequests{All: n(100), Info: n(5), Insert: n(1), Set: n(2), Query: n(3), Update: n(4), Purge: n(6), List: n(79)})
	require.Equal(t, load.Requests{Insert: 1, Set: 2, Query: 3, Update: 4, Purge: 6, Other: 79}, r)
	require.EqualValues(t, 95, r.All())
	require.EqualValues(t, 3, r.Creations())
	require.Equal(t, r, r.Plus(r).Minus(r))
	require.Equal(t, 95*6*time.Microsecond+3*140*time.Microsecond, r.ServerTime())
}

func TestFiguresPerWindow(t *testing.T) {
	w := load.Windows{Hits: 10, Opened: 4}
	require.InDelta(t, 2.5, w.PerWindow(10), 0)
	require.InDelta(t, 400, w.OpenedPerSecond(1000), 0)
	w = load.Windows{Hits: 10, Denied: 1, Opened: 4, Requests: load.Requests{Insert: 4, Query: 40, Update: 5}}
	require.EqualValues(t, 49-2*5, w.Opening())
	w.Requests = load.Requests{Query: 5}
	require.Zero(t, w.Opening(), "hits of one key at one time share requests")
	w = load.Windows{}
	require.Zero(t, w.Opening())
	require.Zero(t, w.PerWindow(10))
	require.Zero(t, w.OpenedPerSecond(1000))
}

func TestTurnsAddUpWindows(t *testing.T) {
	one := load.Windows{Hits: 3, Denied: 2, Opened: 1, Requests: load.Requests{Query: 5}}
	sum := load.Combine([]load.Result{{Windows: &one}, {}, {Windows: &one}}).Windows
	require.Equal(t, load.Windows{Hits: 6, Denied: 4, Opened: 2, Requests: load.Requests{Query: 10}}, *sum)
	require.Equal(t, load.Windows{Hits: 3, Denied: 2, Opened: 1, Requests: load.Requests{Query: 5}}, one)
	require.Nil(t, load.Combine([]load.Result{{}, {}}).Windows)
}

func TestMixHasAsManyRequestsAsAWindowTakes(t *testing.T) {
	m := load.MixOf(load.Windows{Opened: 10, Requests: load.Requests{Insert: 9, Set: 1, Query: 24, Update: 15, Purge: 10, Other: 1}})
	require.Equal(t, load.Mix{Inserts: 1, Updates: 3, Queries: 2}, m)
	require.Equal(t, load.Mix{Updates: 1}, load.MixOf(load.Windows{}))

	f := load.FramesOfMix[uint16.Value](m)
	require.Equal(t, 6, f.Responses)
	require.Equal(t, 3+1+2*6, f.ResponseSize)
	ops := map[codec.Op]int{}
	var last codec.Op
	for src := f.Append(nil, []byte("key")); len(src) > 0; {
		r, n, err := codec.DecodeRequest[uint16.Value](src)
		require.NoError(t, err)
		last = r.Op()
		ops[last]++
		src = src[n:]
	}
	require.Equal(t, map[codec.Op]int{codec.OpInsert: 1, codec.OpUpdate: 3, codec.OpQuery: 2}, ops)
	require.Equal(t, codec.OpQuery, last)
}
