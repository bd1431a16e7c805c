package mockserver_test

import (
	"context"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/codec/uint8"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/mockserver"
)

// bubble runs f in a synctest bubble, with a server in memory that has values of 2 bytes.
// Violations do not fail the test.
func bubble(t *testing.T, f func(t *testing.T, srv *mockserver.Server), opts ...mockserver.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, err := mockserver.Start(append([]mockserver.Option{mockserver.WithAddr("memory", "")}, opts...)...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		f(t, srv)
	})
}

// subtest runs a test in a bubble, as bubble does, under a name.
func subtest(t *testing.T, name string, f func(t *testing.T, srv *mockserver.Server), opts ...mockserver.Option) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, f, opts...) })
}

// frames encodes frames, one behind the other.
func frames(t testing.TB, all ...encoding.BinaryAppender) []byte {
	t.Helper()
	var b []byte
	for _, f := range all {
		var err error
		b, err = f.AppendBinary(b)
		require.NoError(t, err)
	}
	return b
}

func insert(key string, quota uint16.Value, amount uint16.Value, unit codec.Unit) uint16.Insert {
	return uint16.Insert{Key: []byte(key), Quota: quota, TTL: uint16.TTL{Amount: amount, Unit: unit}}
}

func query(key string) codec.Query { return codec.Query{Key: []byte(key)} }

func purge(key string) codec.Purge { return codec.Purge{Key: []byte(key)} }

func increase(key string, by uint16.Value) uint16.Update {
	return uint16.Update{Attribute: codec.Quota, Change: codec.Increase, Value: by, Key: []byte(key)}
}

// wire is a connection in a synctest bubble. A goroutine collects what arrives, so that a
// test can require that nothing has arrived.
type wire struct {
	t    *testing.T
	conn net.Conn
	got  chan []byte
}

func connect(t *testing.T, srv *mockserver.Server) *wire {
	t.Helper()
	conn, err := srv.Dial(context.Background())
	require.NoError(t, err)
	w := &wire{t: t, conn: conn, got: make(chan []byte, 1<<16)}
	t.Cleanup(func() { conn.Close() })
	go w.collect()
	synctest.Wait() // from now on, the server's writer waits until all responses to a write are there
	return w
}

func (w *wire) collect() {
	defer close(w.got)
	for {
		buf := make([]byte, 4096)
		n, err := w.conn.Read(buf)
		if n > 0 {
			w.got <- buf[:n]
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) send(p []byte) {
	w.t.Helper()
	if len(p) > 0 {
		_, err := w.conn.Write(p)
		require.NoError(w.t, err)
	}
}

// pieces waits until nothing more can arrive unless time passes. It returns what has
// arrived since the last call, read by read, and whether the server has ended the
// connection.
func (w *wire) pieces() (all [][]byte, closed bool) {
	synctest.Wait()
	for {
		select {
		case p, open := <-w.got:
			if !open {
				return all, true
			}
			all = append(all, p)
		default:
			return all, false
		}
	}
}

// received returns what has arrived since the last call, in hex.
func (w *wire) received() string {
	all, _ := w.pieces()
	s := ""
	for _, p := range all {
		s += hex.EncodeToString(p)
	}
	return s
}

func (w *wire) closed() bool {
	_, closed := w.pieces()
	return closed
}

// ask sends frames in one write and returns the bytes of the responses, in hex.
func (w *wire) ask(all ...encoding.BinaryAppender) string {
	w.t.Helper()
	w.send(frames(w.t, all...))
	return w.received()
}

// askReal is ask on any connection, for n bytes of responses.
func askReal(t testing.TB, conn net.Conn, n int, all ...encoding.BinaryAppender) string {
	t.Helper()
	_, err := conn.Write(frames(t, all...))
	require.NoError(t, err)
	buf := make([]byte, n)
	_, err = io.ReadFull(conn, buf)
	require.NoError(t, err)
	return hex.EncodeToString(buf)
}

type transcript struct {
	ValueSize int `json:"value_size"`
	Scenarios []struct {
		Name  string
		Steps []step
	}
}

type step struct {
	Conn      int
	Send      string
	Recv      string
	AdvanceMS int `json:"advance_ms"`
}

func TestRespondsAsTheRealServerDid(t *testing.T) {
	for _, bits := range []int{8, 16, 32, 64} {
		raw, err := os.ReadFile(fmt.Sprintf("testdata/throttr-uint%d.json", bits))
		require.NoError(t, err)
		var rec transcript
		require.NoError(t, json.Unmarshal(raw, &rec))
		require.Equal(t, bits/8, rec.ValueSize)
		require.Len(t, rec.Scenarios, 20)
		for _, sc := range rec.Scenarios {
			for name, option := range map[string]mockserver.Option{"prompt": virtual, "real": realCollector} {
				subtest(t, fmt.Sprintf("uint%d/%s/%s", bits, sc.Name, name), func(t *testing.T, srv *mockserver.Server) {
					replay(t, srv, sc.Steps)
					require.Empty(t, srv.Violations())
				}, mockserver.WithValueSize(bits/8), virtual, option)
			}
		}
	}
}

// replay executes the steps of a scenario. All connections are made before the first step.
func replay(t *testing.T, srv *mockserver.Server, steps []step) {
	wires := map[int]*wire{}
	for _, step := range steps {
		if wires[step.Conn] == nil {
			wires[step.Conn] = connect(t, srv)
		}
	}
	whoami := ""
	for n, step := range steps {
		srv.Advance(time.Duration(max(step.AdvanceMS, 1)) * time.Millisecond)
		if step.AdvanceMS > 0 {
			continue
		}
		w := wires[step.Conn]
		w.send(fromHex(t, strings.ReplaceAll(step.Send, "{whoami}", whoami)))
		got := w.received()
		want := "^" + strings.ReplaceAll(step.Recv, "?", ".") + "$" // "??" is any byte
		require.Regexp(t, want, got, "step %d: %s", n, step.Send)
		if step.Send == "18" {
			whoami = got[2:]
		}
	}
}

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// dialReal connects over the socket that the server listens on.
func dialReal(t testing.TB, srv *mockserver.Server) net.Conn {
	t.Helper()
	addr, err := dial.ParseAddress(srv.Addr())
	require.NoError(t, err)
	conn, err := net.Dial(addr.Network, addr.Address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestStartRejectsUnknownOptions(t *testing.T) {
	require.PanicsWithValue(t, "mockserver: Start: option 2 is nil", func() { mockserver.Start(virtual, nil) })
	for _, c := range []struct {
		option mockserver.Option
		text   string
	}{
		{mockserver.WithValueSize(-1), "value size"}, {mockserver.WithValueSize(0), "value size"},
		{mockserver.WithValueSize(3), "value size"}, {mockserver.WithValueSize(16), "value size"},
		{mockserver.WithHazard(10, true), "Hazard(10)"}, {mockserver.WithAddr("udp", ""), "network"},
		{mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "no", "such", "folder")), "no"},
		{mockserver.WithServiceTime(time.Millisecond + 1), "service time is 0 to 1ms, not 1.000001ms"},
		{mockserver.WithServiceTime(-1), "not -1ns"},
	} {
		_, err := mockserver.Start(c.option)
		require.ErrorContains(t, err, c.text)
	}
}

func TestCloseEndsAllGoroutines(t *testing.T) {
	running := func() int {
		buf := make([]byte, 1<<20)
		return strings.Count(string(buf[:runtime.Stack(buf, true)]), "mockserver.(*")
	}
	require.Eventually(t, func() bool { return running() == 0 }, 10*time.Second, time.Millisecond)
	// Unlike a port, a path is not taken by another process meanwhile.
	srv, err := mockserver.Start(mockserver.WithAddr("unix", filepath.Join(t.TempDir(), "s")))
	require.NoError(t, err)
	srv.Inject(mockserver.Fault{Delay: time.Hour})
	for range 5 {
		_, err := dialReal(t, srv).Write(frames(t, query("k")))
		require.NoError(t, err)
	}
	conn, err := srv.Dial(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.Eventually(t, func() bool { return srv.Requests(codec.OpQuery) == 5 }, 10*time.Second, time.Millisecond)
	require.NotZero(t, running())

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close())
	require.Zero(t, srv.Conns())
	// A goroutine calls wg.Done a moment before it ends.
	require.Eventually(t, func() bool { return running() == 0 }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, srv.Restart(true), net.ErrClosed)
	_, err = srv.Dial(t.Context())
	require.ErrorIs(t, err, mockserver.ErrRefused)
	_, err = net.Dial("unix", strings.TrimPrefix(srv.Addr(), "unix://"))
	require.Error(t, err)
	require.Equal(t, 5, srv.Requests(codec.OpQuery), "the counts can still be read")
}

var _ mockserver.TB = (*testing.T)(nil)

// cost returns how long the response to a request takes.
func (w *wire) cost(request encoding.BinaryAppender) time.Duration {
	start := time.Now()
	w.send(frames(w.t, request))
	<-w.got
	took := time.Since(start)
	w.received() // the rest of a long one
	return took
}

func TestServiceTimeDependsOnWhatTheServerHasDone(t *testing.T) {
	const one, fresh = 10 * time.Microsecond, 13 * time.Microsecond
	again := insert("k", 1, 9, codec.Hours)
	set := uint16.Set{Key: []byte("b"), Value: []byte("v"), TTL: again.TTL}
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, fresh, w.cost(again))
		slower := w.cost(again)
		require.Equal(t, fresh+32*time.Microsecond/20_000, slower, "it fails, and takes as long as one that does not")
		require.Equal(t, slower, w.cost(again), "what fails makes no record")
		require.Equal(t, slower, w.cost(set))
		require.Greater(t, w.cost(set), slower)
		require.Equal(t, one, w.cost(query("k")))

		for i := range 998 {
			srv.Set(string(rune(i+0x100)), 1, time.Hour)
		}
		time.Sleep(time.Minute)
		require.Equal(t, one+350*time.Microsecond, w.cost(query("no")), "once a minute it looks through its records")
		require.Equal(t, one, w.cost(query("no")))
		require.Equal(t, one+350*time.Microsecond, w.cost(codec.Info{}))
		require.Equal(t, one+5*time.Millisecond, w.cost(codec.List{}))

		nc := sending(t, srv, 500)
		time.Sleep(time.Second)
		nc.Close()
		synctest.Wait()
		require.Equal(t, 500, srv.Leaked())
		require.Equal(t, one+850*time.Nanosecond, w.cost(query("no")), "unread responses make requests slower")

		require.NoError(t, srv.Restart(true))
		require.Equal(t, fresh, connect(t, srv).cost(again), "a restarted server is new")
	}, mockserver.WithRealServiceTime())
}

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
		srv.Advance(2 * time.Minute)
		require.Equal(t, one, response[codec.InfoResponse](w, codec.Info{}).Requests.Insert, "none in the last minute")
		require.Equal(t, 3, srv.Requests(codec.OpInfo))
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
		require.Len(t, slices.Collect(response[uint16.ListResponse](w, codec.List{}).All()), 2, "a dead record is not listed")
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
