package mockserver_test

import (
	"encoding/hex"
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
