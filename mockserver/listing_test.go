package mockserver_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

func subscribe(channel string) codec.Subscribe { return codec.Subscribe{Channel: []byte(channel)} }

func unsubscribe(channel string) codec.Unsubscribe {
	return codec.Unsubscribe{Channel: []byte(channel)}
}

func publish(channel, payload string) uint16.Publish {
	return uint16.Publish{Channel: []byte(channel), Payload: []byte(payload)}
}

// event is an EVENT in hex.
func event(t *testing.T, channel, payload string) string {
	return hex.EncodeToString(frames(t, uint16.Event{Channel: []byte(channel), Payload: []byte(payload)}))
}

// response sends a request and returns its decoded response.
func response[R codec.Response](w *wire, req codec.Request) R {
	w.t.Helper()
	src := fromHex(w.t, w.ask(req))
	res, n, err := codec.DecodeResponse[uint16.Value](req.ResponseKind(), src)
	require.NoError(w.t, err)
	require.Equal(w.t, len(src), n)
	return res.(R)
}

func TestTwoSubscriptionsDeliverTwice(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w, other := connect(t, srv), connect(t, srv)
		require.Equal(t, "0101", w.ask(subscribe("news"), subscribe("news")))
		require.Equal(t, 2, srv.Subscriptions("news"))
		require.Equal(t, "01", other.ask(publish("news", "x")))
		require.Equal(t, strings.Repeat(event(t, "news", "x"), 2), w.received())
		require.Equal(t, "01", other.ask(unsubscribe("news")), "the channel exists, and that suffices")
		require.Equal(t, 2, srv.Subscriptions("news"))
		require.Equal(t, "01", w.ask(unsubscribe("news")), "both subscriptions end")
		require.Equal(t, "0000", other.ask(unsubscribe("news"), publish("news", "x")))
		require.Empty(t, w.received())

		require.Equal(t, "01", w.ask(subscribe("news")))
		require.NoError(t, w.conn.Close())
		synctest.Wait()
		require.Zero(t, srv.Subscriptions("news"), "a subscription ends with its connection")
	})
}

func TestChannelListsItsSubscribers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		a, b := connect(t, srv), connect(t, srv)
		srv.Advance(time.Second)
		require.Equal(t, "01", a.ask(subscribe("news")))
		srv.Advance(time.Second)
		require.Equal(t, "01", b.ask(subscribe("news")))
		b.ask(publish("news", "12345"))
		a.received()
		news := response[codec.ChannelResponse](b, codec.Channel{Name: []byte("news")})
		require.True(t, news.Found)
		require.Equal(t, []codec.Subscriber{
			{ID: response[codec.WhoAmIResponse](a, codec.WhoAmI{}).ID, Since: uint64(mockserver.Epoch.Add(time.Second).UnixNano()), ReadBytes: 5},
			{ID: response[codec.WhoAmIResponse](b, codec.WhoAmI{}).ID, Since: uint64(mockserver.Epoch.Add(2 * time.Second).UnixNano()), ReadBytes: 5},
		}, news.Subscribers)

		all := response[codec.ChannelsResponse](b, codec.Channels{})
		names := map[string]uint64{}
		for c := range all.All() {
			names[string(c.Name)] = c.Connections
		}
		require.Len(t, names, 4)
		require.EqualValues(t, 2, names["*"])
		require.EqualValues(t, 2, names["news"])
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
