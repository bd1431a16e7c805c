package mockserver_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/codec/uint8"
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

func TestRecordsCanBeReadAndWritten(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, mockserver.Epoch, srv.Now())
		require.Empty(t, srv.Keys())
		srv.Set("b", 7, time.Minute)
		srv.Set("a", 9, 1500*time.Millisecond)
		require.Equal(t, "01"+"0700"+"03"+"5fea", w.ask(query("b")), "60 s are 59,999 ms and a bit")
		require.Equal(t, "01", w.ask(uint16.Set{Key: []byte("c"), TTL: uint16.TTL{Amount: 1, Unit: codec.Hours}, Value: []byte("v")}))
		require.Equal(t, []string{"a", "b", "c"}, srv.Keys())

		counter := func(key string) string { return fmt.Sprint(srv.Counter(key)) }
		require.Equal(t, "9 true", counter("a"))
		require.Equal(t, "0 false", counter("c"), "a buffer is not a counter")
		require.Equal(t, "0 false", counter("missing"))

		srv.Advance(time.Second)
		require.Equal(t, "500ms true", fmt.Sprint(srv.TTL("a")))
		srv.Advance(500 * time.Millisecond)
		require.Equal(t, "0s false", fmt.Sprint(srv.TTL("a")))
		require.Equal(t, "0 false", counter("a"))
		require.Equal(t, 1, srv.Expired())

		require.True(t, srv.Delete("a"), "Delete removes dead records, too")
		require.False(t, srv.Delete("a"))
		require.Equal(t, "01", w.ask(insert("a", 1, 1, codec.Hours)))
		srv.Set("a", 2, time.Hour)
		require.Equal(t, "2 true", counter("a"))
		require.Panics(t, func() { srv.Set("a", 65536, time.Hour) })
		require.Panics(t, func() { srv.Set(strings.Repeat("a", 256), 1, time.Hour) }, "no LIST could return it")
		require.Equal(t, mockserver.Epoch.Add(1500*time.Millisecond), srv.Now())
		srv.Advance(math.MaxInt64)
		require.Equal(t, 2322, srv.Now().Year(), "beyond what fits ns in an int64")
		require.Panics(t, func() { srv.Advance(-1) })
	}, virtual)
}

func TestSetChoosesTheFinestUnitThatFits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		for ttl, want := range map[time.Duration]string{
			200 * time.Nanosecond: "01" + "c7",
			time.Millisecond:      "03" + "00",
			time.Second:           "04" + "00",
			time.Minute:           "04" + "3b",
			5 * time.Minute:       "05" + "04",
			300 * time.Hour:       "06" + "2b", // 299 modulo 256
		} {
			srv.Set("k", 1, ttl)
			require.Equal(t, "01"+"01"+want, w.ask(query("k")), "%v", ttl)
		}
		require.Equal(t, "01", w.ask(uint8.Insert{Key: []byte("l"), TTL: uint8.TTL{Amount: 1, Unit: codec.Hours}}))
		require.Panics(t, func() { srv.Publish("*", make([]byte, 256)) }, "the payload does not fit")
	}, virtual, mockserver.WithValueSize(1))
}

func TestObserverSeesExecutedRequests(t *testing.T) {
	var seen []mockserver.Exec
	var srv *mockserver.Server
	observe := func(e mockserver.Exec) {
		require.Equal(t, e.Time, srv.Now(), "the observer may call Now")
		seen = append(seen, e)
	}
	bubble(t, func(t *testing.T, s *mockserver.Server) {
		srv = s
		w := connect(t, s)
		s.Advance(time.Second)
		w.ask(insert("k", 5, 1, codec.Hours), increase("k", 2))
		w2 := connect(t, s)
		w2.ask(query("k"), purge("k"), purge("k"))
		w2.ask(uint16.Set{Key: []byte("b"), TTL: uint16.TTL{Amount: 1, Unit: codec.Hours}}, codec.Get{Key: []byte("b")})
		w.ask(query("k"))
	}, virtual, mockserver.WithObserver(observe))

	var got []string
	for _, e := range seen {
		require.Equal(t, mockserver.Epoch.Add(time.Second), e.Time)
		require.Equal(t, e.Op, e.Request.Op())
		got = append(got, fmt.Sprintf("%d %v %s %v %d", e.Conn, e.Op, e.Key, e.Status, e.Quota))
	}
	require.Equal(t, []string{
		"1 INSERT k true 5", "1 UPDATE k true 7",
		"2 QUERY k true 7", "2 PURGE k true 0", "2 PURGE k false 0", "2 SET b true 0", "2 GET b true 0",
		"1 QUERY k false 0",
	}, got)
	require.Equal(t, uint16.Value(5), seen[0].Request.(uint16.Insert).Quota)
}
