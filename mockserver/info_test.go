package mockserver_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

// A real server updates these figures once a minute.
func TestUsageIsUpdatedOnceAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		stat := func() codec.Usage {
			t.Helper()
			res := response[codec.StatResponse](w, codec.Stat{Key: []byte("k")})
			require.True(t, res.Found)
			return res.Usage
		}
		w.ask(insert("k", 1, 9, codec.Hours), query("k"), query("k"), increase("k", 1))
		require.Zero(t, stat())
		srv.Advance(time.Minute)
		// Reads: two QUERYs, the UPDATE and the STAT. Writes: the INSERT and the UPDATE.
		require.Equal(t, codec.Usage{ReadsPerMinute: 4, WritesPerMinute: 2, Reads: 4, Writes: 2}, stat())
		require.Equal(t, codec.Usage{ReadsPerMinute: 4, WritesPerMinute: 2, Reads: 4, Writes: 2}, stat())
		srv.Advance(time.Minute)
		require.Equal(t, codec.Usage{ReadsPerMinute: 2, Reads: 6, Writes: 2}, stat())
		srv.Advance(time.Hour)
		require.Equal(t, codec.Usage{Reads: 7, Writes: 2}, stat())
		w.ask(purge("k"))
		require.False(t, response[codec.StatResponse](w, codec.Stat{Key: []byte("k")}).Found)
	}, virtual)
}

func TestInfoCountsItself(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Advance(time.Second)
		w, other := connect(t, srv), connect(t, srv)
		w.ask(insert("k", 1, 9, codec.Hours), query("k"), subscribe("news"))
		other.ask(uint16.Set{Key: []byte("b"), Value: []byte("value"), TTL: uint16.TTL{Amount: 9, Unit: codec.Hours}})
		info := response[codec.InfoResponse](w, codec.Info{})
		one := codec.Count{Total: 1}
		require.Equal(t, codec.InfoResponse{
			Timestamp: uint64(mockserver.Epoch.Unix()) + 1,
			Requests:  codec.InfoRequests{All: codec.Count{Total: 5}, Insert: one, Query: one, Subscribe: one, Set: one, Info: one},
			ReadBytes: codec.Count{Total: 8 + 3 + 6 + 13 + 1}, WriteBytes: codec.Count{Total: 1 + 6 + 1 + 1},
			Keys: 2, Counters: 1, Buffers: 1, CounterBytes: 2, BufferBytes: 5,
			Subscriptions: 5, Channels: 2, RunningSince: uint64(mockserver.Epoch.UnixNano()), Connections: 2,
			Version: "5.0.11",
		}, info)
		srv.Advance(time.Minute)
		info = response[codec.InfoResponse](w, codec.Info{})
		require.Equal(t, codec.Count{Total: 6, PerMinute: 5}, info.Requests.All)
		require.Equal(t, codec.Count{Total: 1, PerMinute: 1}, info.Requests.Insert)
		require.Equal(t, 2, srv.Requests(codec.OpInfo))
	}, virtual)
}

// The recorded server had 300 keys, 12 connections and 114 channels. The same state has as
// many fragments and bytes here.
func TestLargeResponsesHaveTheSizesOfARealServer(t *testing.T) {
	file, err := os.ReadFile("../codec/testdata/responses-uint16.json")
	require.NoError(t, err)
	var rec struct {
		Keys        map[string][2]any
		Channels    []string
		List        string
		Stats       string
		Connections string `json:"connections_response"`
		Listed      string `json:"channels_response"`
	}
	require.NoError(t, json.Unmarshal(file, &rec))
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		wires := make([]*wire, 12)
		for i := range wires {
			wires[i] = connect(t, srv)
		}
		w := wires[0]
		for key, is := range rec.Keys {
			n := int(is[1].(float64))
			if is[0] == "buffer" {
				w.ask(uint16.Set{Key: []byte(key), Value: make([]byte, n), TTL: uint16.TTL{Amount: 9, Unit: codec.Hours}})
			} else {
				w.ask(insert(key, uint16.Value(n), 9, codec.Hours))
			}
		}
		for i, channel := range rec.Channels {
			wires[i%12].ask(subscribe(channel))
		}
		for i := range 5 {
			wires[i].ask(subscribe("multi"))
		}
		// The order of the keys differs, and so the sizes of fragments differ a little.
		require.InDelta(t, len(rec.List), 2*len(w.raw(codec.List{})), 2*2*16)
		require.InDelta(t, len(rec.Stats), 2*len(w.raw(codec.Stats{})), 2*2*16)
		require.Len(t, w.raw(codec.Connections{}), len(rec.Connections)/2)
		listed := w.raw(codec.Channels{})
		require.Len(t, listed, len(rec.Listed)/2)
		require.Equal(t, rec.Listed[:2*25], hex.EncodeToString(listed[:25]), "81 of 114 in the first of two fragments")
	})
}

// raw returns the bytes of the response to a request.
func (w *wire) raw(req codec.Request) []byte {
	w.t.Helper()
	return fromHex(w.t, w.ask(req))
}

func TestConnectionsAreListedInOrderOfAcceptance(t *testing.T) {
	srv := mockserver.RunT(t)
	conn := dialReal(t, srv)
	first := askReal(t, conn, 17, codec.WhoAmI{})
	second := askReal(t, dialReal(t, srv), 17, codec.WhoAmI{})
	src := fromHex(t, askReal(t, conn, 9+16+2*237, codec.Connections{}))
	res, _, err := codec.DecodeConnectionsResponse(src)
	require.NoError(t, err)
	all := slices.Collect(res.All())
	require.Len(t, all, 2)
	require.Equal(t, []string{first[2:], second[2:]}, []string{all[0].ID.String(), all[1].ID.String()})
	require.Equal(t, codec.TCP, all[0].Transport)
	require.Equal(t, "127.0.0.1", all[0].IP)
	require.EqualValues(t, 4, all[0].IPVersion)
	require.NotZero(t, all[0].Port)
	require.EqualValues(t, 2, all[0].ReadBytes)
	require.EqualValues(t, 17, all[0].WriteBytes)
	require.InDelta(t, time.Now().UnixNano(), all[0].Connected, float64(time.Minute))
}
