package mockserver_test

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/codec/uint64"
	"github.com/throttr-go/throttr/mockserver"
)

var virtual = mockserver.WithVirtualClock()

func with(h mockserver.Hazard) mockserver.Option    { return mockserver.WithHazard(h, true) }
func without(h mockserver.Hazard) mockserver.Option { return mockserver.WithHazard(h, false) }

func TestGraceKeepsTheKeyOfAnExpiredRecord(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, "01", w.ask(insert("k", 1, 1, codec.Seconds)))
		srv.Advance(time.Second - 1)
		require.Equal(t, "01"+"0100"+"040000", w.ask(query("k")))
		srv.Advance(1)
		again := insert("k", 1, 1, codec.Hours)
		require.Equal(t, "00000000", w.ask(query("k"), again, increase("k", 1), purge("k")))
		require.Equal(t, "00", w.ask(uint16.Set{Key: []byte("k"), TTL: again.TTL}))
		srv.Advance(10*time.Second - 1)
		require.Equal(t, "00", w.ask(again))
		srv.Advance(1)
		require.Equal(t, "01", w.ask(again))
		require.Equal(t, 1, srv.Expired())
		buffer := uint16.Set{Key: []byte("b"), TTL: uint16.TTL{Amount: 1, Unit: codec.Seconds}}
		require.Equal(t, "01", w.ask(buffer))
		srv.Advance(time.Second)
		require.Equal(t, "00", w.ask(buffer), "a dead buffer is not overwritten")
	}, virtual)
}

func TestHazardsThatAreOff(t *testing.T) {
	for name, c := range map[string]struct {
		off  mockserver.Hazard
		test func(t *testing.T, srv *mockserver.Server, w *wire)
	}{
		"the key of an expired record is free at once": {mockserver.Grace, func(t *testing.T, srv *mockserver.Server, w *wire) {
			require.Equal(t, "0101", w.ask(insert("long", 1, 5, codec.Seconds), insert("k", 1, 1, codec.Seconds)))
			srv.Advance(time.Second)
			require.Equal(t, []string{"long"}, srv.Keys())
			require.Equal(t, "0001", w.ask(query("k"), insert("k", 1, 1, codec.Seconds)))
			require.Equal(t, 1, srv.Expired())
		}},
		"an INCREASE past the largest value fails": {mockserver.Wrap, func(t *testing.T, srv *mockserver.Server, w *wire) {
			require.Equal(t, "010001", w.ask(insert("k", 65534, 1, codec.Hours), increase("k", 2), increase("k", 1)))
			quota, _ := srv.Counter("k")
			require.EqualValues(t, 65535, quota)
		}},
		"records that expire at one time do no harm": {mockserver.LockUp, func(t *testing.T, srv *mockserver.Server, w *wire) {
			srv.Set("k", 1, time.Second)
			srv.Set("l", 1, time.Second+20*time.Microsecond)
			srv.Advance(time.Minute)
			require.Equal(t, 2, srv.Expired())
			require.Equal(t, "00", w.ask(query("k")))
		}},
		"messages reach subscribers only": {mockserver.Events, func(t *testing.T, srv *mockserver.Server, w *wire) {
			require.Zero(t, srv.Publish("*", []byte("all")))
			require.Empty(t, w.received())
			require.Equal(t, "01", w.ask(subscribe("*")))
			require.Equal(t, event(t, "*", "x")+"01", w.ask(publish("*", "x")))
		}},
	} {
		run := func(t *testing.T, srv *mockserver.Server) { c.test(t, srv, connect(t, srv)) }
		subtest(t, name, run, virtual, realCollector, without(c.off))
	}
}

// reset closes a TCP connection with a reset.
func reset(t *testing.T, nc net.Conn) {
	t.Helper()
	require.NoError(t, nc.(*net.TCPConn).SetLinger(0))
	require.NoError(t, nc.Close())
}

func TestAResetBeforeTheAcceptIsAViolation(t *testing.T) {
	srv, err := mockserver.Start()
	require.NoError(t, err)
	defer srv.Close()
	srv.HoldAccept(true)
	closed, gone, kept := dialReal(t, srv), dialReal(t, srv), dialReal(t, srv)
	require.NoError(t, closed.Close())
	reset(t, gone)
	time.Sleep(10 * time.Millisecond)
	require.Zero(t, srv.Conns())
	srv.HoldAccept(false)
	require.Equal(t, "00", askReal(t, kept, 1, query("k")))
	require.Len(t, srv.Violations(), 1)
	require.Equal(t, mockserver.Violation{
		Rule: "H15", Conn: 2, Text: "the connection was reset before it was accepted, which kills a real server",
	}, srv.Violations()[0])
	reset(t, kept)
	require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
	require.Len(t, srv.Violations(), 1, "later it does no harm")

	srv.HoldAccept(true)
	waiting := dialReal(t, srv)
	require.NoError(t, waiting.SetReadDeadline(time.Now().Add(5*time.Second)))
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, srv.Close())
	_, err = waiting.Read(make([]byte, 1))
	require.Error(t, err, "a connection that waits ends with the server")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// sending returns a connection on which a server has executed n requests, and no response was read.
func sending(t *testing.T, srv *mockserver.Server, n int) net.Conn {
	nc, err := srv.Dial(t.Context())
	require.NoError(t, err)
	_, err = nc.Write(flood(t, n))
	require.NoError(t, err)
	synctest.Wait()
	return nc
}

func TestResponsesThatAClientLeavesUnreadLeak(t *testing.T) {
	subtest(t, "memory", func(t *testing.T, srv *mockserver.Server) {
		nc := sending(t, srv, 64)
		_, err := io.ReadFull(nc, make([]byte, 14))
		require.NoError(t, err)
		nc.Close()
		synctest.Wait()
		require.Equal(t, 50, srv.Leaked())

		sending(t, srv, 10)
		srv.Disconnect()
		require.Zero(t, srv.Publish("*", nil), "nobody is left")
		synctest.Wait()
		require.Equal(t, 50, srv.Leaked(), "the server ended that connection")

		srv.Inject(mockserver.Fault{Delay: time.Hour})
		sending(t, srv, 10).Close()
		synctest.Wait()
		require.Equal(t, 60, srv.Leaked())
		require.NoError(t, srv.Restart(true))
		require.Zero(t, srv.Leaked(), "a new process")
	})
	for name, end := range map[string]func(t *testing.T, nc net.Conn){
		"close": func(t *testing.T, nc net.Conn) { nc.Close() },
		"reset": reset,
	} {
		t.Run(name, func(t *testing.T) {
			srv := mockserver.RunT(t, mockserver.WithServiceTime(50*time.Microsecond))
			nc := dialReal(t, srv)
			require.Equal(t, "00", askReal(t, nc, 1, query("k")))
			_, err := nc.Write(flood(t, 64))
			require.NoError(t, err)
			end(t, nc)
			require.Eventually(t, func() bool { return srv.Requests(codec.OpQuery) == 65 && srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
			require.Equal(t, 64, srv.Leaked())
			nc = dialReal(t, srv)
			require.Equal(t, strings.Repeat("00", 64), askReal(t, nc, 64, slices.Repeat([]encoding.BinaryAppender{query("k")}, 64)...))
			nc.Close()
			require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
			require.Equal(t, 64, srv.Leaked(), "what was read does not leak")
		})
	}
}

func TestLoadDuringTheStartIsAViolation(t *testing.T) {
	for name, c := range map[string]struct {
		requests   []int // in packets
		after      time.Duration
		violations string
	}{
		"a probe":          {[]int{8}, 0, `^\[\]$`},
		"a large packet":   {[]int{9}, 0, `^\[H17: [^H]*\]$`},
		"two packets":      {[]int{1, 1}, 0, `^\[H17: [^H]*\]$`},
		"load after 40 ms": {[]int{100, 100}, 40 * time.Millisecond, `^\[\]$`},
	} {
		subtest(t, name, func(t *testing.T, srv *mockserver.Server) {
			time.Sleep(time.Second)
			connect(t, srv).ask(query("k"), query("k"))
			require.NoError(t, srv.Restart(false))
			time.Sleep(c.after)
			w := connect(t, srv)
			for _, n := range c.requests {
				w.send(flood(t, n))
				synctest.Wait()
			}
			require.Regexp(t, c.violations, fmt.Sprint(srv.Violations()))
		}, mockserver.WithHazard(mockserver.StartUp, true))
	}
}

func TestTheUnitOfARecordThatIsGoneIsAStrayOne(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		w.ask(insert("k", 5, 60, codec.Seconds))
		require.Equal(t, "010500043b00", w.ask(query("k")))
		got := w.ask(query("k"), purge("k"), insert("k", 5, 60, codec.Minutes))
		require.Len(t, got, 2*(6+2))
		require.Equal(t, "010500", got[:6])
		require.NotEqual(t, "04", got[6:8])
		require.Equal(t, "3b00"+"0101", got[8:])

		defer srv.Inject(mockserver.Fault{Op: codec.OpGet, Delay: time.Second})()
		w.ask(uint16.Set{Key: []byte("b"), Value: []byte("x"), TTL: uint16.TTL{Amount: 60, Unit: codec.Seconds}})
		w.ask(codec.Get{Key: []byte("b")})
		require.Equal(t, "01", connect(t, srv).ask(purge("b")), "by another connection")
		time.Sleep(time.Second)
		got = w.received()
		require.Equal(t, "01", got[:2])
		require.NotEqual(t, "04", got[2:4])

		remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Replace: []byte{0}, Times: 1})
		defer remove()
		w.ask(insert("k", 5, 60, codec.Seconds))
		require.Equal(t, "0001", w.ask(query("k"), purge("k")), "a response that is replaced stays as it is")
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Drop: true})
		w.ask(insert("k", 5, 60, codec.Seconds))
		require.Equal(t, "000001", w.ask(purge("l"), purge("l"), query("k"), purge("k")), "and so do those before one that is lost")
	}, mockserver.WithHazard(mockserver.StrayUnit, true))
}

func TestNothingExpiresOnAParkedServer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		w.ask(insert("", 80, 100, codec.Hours), insert("k", 1, 1, codec.Seconds))
		require.Equal(t, "01", w.ask(patchTTL("", 100)), "parked")
		w.ask(insert("l", 1, 1, codec.Minutes))
		srv.Advance(99 * time.Hour)
		require.Equal(t, "01"+"0100"+"040000", w.ask(query("k")), "live, with a TTL of 0")
		left, ok := srv.TTL("k")
		require.True(t, ok)
		require.Zero(t, left)
		require.Zero(t, srv.Expired())

		srv.Advance(time.Hour)
		require.Equal(t, "000000", w.ask(query(""), query("k"), query("l")))
		require.Equal(t, 3, srv.Expired(), "with the record that parked it")

		srv.Advance(10 * time.Second) // the grace
		w.ask(insert("", 80, 100, codec.Hours), patchTTL("", 100), insert("k", 1, 1, codec.Seconds))
		srv.Advance(2 * time.Second)
		require.Equal(t, "01", w.ask(purge("")))
		require.Equal(t, 4, srv.Expired(), "at once when it is not parked any more")
	}, virtual)
}

func TestResponsesToOneReadAreReversed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, "01"+"0100"+"050000"+"00"+"01", w.ask(insert("k", 1, 1, codec.Minutes), query("l"), query("k")))
		require.Equal(t, "00", w.ask(query("l")), "one alone is as ever")
	}, with(mockserver.Reorder))
}

func TestGarbledListHasEntriesThatNeverExisted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		list := func() (keys []string, err error) {
			t.Helper()
			res, _, err := codec.DecodeListResponse[uint16.Value](fromHex(t, w.ask(codec.List{})))
			for e := range res.All() {
				keys = append(keys, string(e.Key))
			}
			return keys, err
		}
		for i := range 5 {
			srv.Set(fmt.Sprint("user:", i), 1, time.Hour)
		}
		keys, err := list()
		require.NoError(t, err)
		require.Len(t, keys, 5)

		require.Equal(t, "0101", w.ask(purge("user:3"), purge("user:4")))
		for range 3 {
			keys, err = list()
			require.NoError(t, err)
			require.Len(t, keys, 5)
			require.ElementsMatch(t, []string{"user:0", "user:1", "user:2"}, keys[:3])
			for _, key := range keys[3:] {
				require.NotContains(t, key, "user")
				require.Equal(t, "00", w.ask(query(key)))
			}
		}
		_, err = list()
		require.ErrorIs(t, err, codec.ErrMalformed)

		stats, _, err := codec.DecodeStatsResponse(fromHex(t, w.ask(codec.Stats{})))
		require.NoError(t, err)
		require.Len(t, stats.Fragments[0], 5)

		srv.Advance(time.Second)
		for range 5 {
			keys, err = list()
			require.NoError(t, err)
			require.Len(t, keys, 3)
		}
	}, virtual, with(mockserver.GarbledList))
}

// flood is n requests in one write.
func flood(t testing.TB, n int) []byte {
	return []byte(strings.Repeat(string(frames(t, query("some key"))), n))
}

// requireViolation requires one violation of rule, which ended w.
func requireViolation(t *testing.T, srv *mockserver.Server, w *wire, rule string) {
	t.Helper()
	require.True(t, w.closed(), "the connection is still open")
	require.Len(t, srv.Violations(), 1)
	v := srv.Violations()[0]
	require.Equal(t, rule, v.Rule)
	require.Equal(t, 1, v.Conn)
	require.Contains(t, v.String(), rule+": connection 1: "+v.Text)
	require.NotEmpty(t, v.Text)
	require.Zero(t, srv.Conns())
	require.Equal(t, "00", connect(t, srv).ask(query("nothing")), "the server goes on")
}

func TestDelayedResponsesAndEventsCountAsOutstanding(t *testing.T) {
	for name, another := range map[string]func(srv *mockserver.Server, w *wire){
		"responses": func(_ *mockserver.Server, w *wire) { w.send(frames(w.t, query("k"))) },
		"events":    func(srv *mockserver.Server, _ *wire) { srv.Publish("*", nil) },
	} {
		subtest(t, name, func(t *testing.T, srv *mockserver.Server) {
			srv.Inject(mockserver.Fault{Times: 1, Delay: time.Second})
			w := connect(t, srv)
			require.Empty(t, w.ask(query("k")))
			for range 1023 {
				another(srv, w)
			}
			require.Empty(t, w.received())
			require.Empty(t, srv.Violations())
			another(srv, w)
			requireViolation(t, srv, w, "H4")
		})
	}
}

func TestWhatHarmsARealServerIsAViolation(t *testing.T) {
	const century = 100 * 365 * 24
	hours := func(n uint64.Value) uint64.TTL { return uint64.TTL{Amount: n, Unit: codec.Hours} }
	ttl := func(change codec.Change, value uint64.Value) uint64.Update {
		return uint64.Update{Attribute: codec.TimeToLive, Change: change, Value: value, Key: []byte("k")}
	}
	// A SET whose key and value fill the buffer to the last byte, and one more.
	set := func(value uint64.Value) []byte {
		head := fromHex(t, "0506010000000000000001")
		head = append(binary.LittleEndian.AppendUint64(head, value), 'b')
		return append(head, make([]byte, value)...)
	}
	const longest = codec.MaxFrame - 20
	type violation struct {
		sent       []byte
		rule, text string
	}
	all := map[string]violation{
		"a frame that is too long": {set(longest + 1)[:19], "H5", ""},
		"insert":                   {frames(t, uint64.Insert{Key: []byte("new"), TTL: hours(math.MaxUint64)}), "H13", ""},
		"insert, 600 years":        {frames(t, uint64.Insert{Key: []byte("new"), TTL: hours(6 * century)}), "H13", ""},
		"insert that fails":        {frames(t, uint64.Insert{Key: []byte("k"), TTL: hours(math.MaxUint64)}), "H13", ""},
		"set":                      {frames(t, uint64.Set{Key: []byte("new"), TTL: hours(math.MaxUint64)}), "H13", ""},
		"patch":                    {frames(t, ttl(codec.Patch, math.MaxUint64)), "H13", ""},
		"increase":                 {frames(t, ttl(codec.Increase, 5*century)), "H13", ""},
		"decrease":                 {frames(t, ttl(codec.Decrease, 3*century)), "H13", ""},
		"an EVENT":                 {[]byte{0x19}, "H27", "op 0x19 from a client is executed as a command"},
	}
	for op, does := range map[byte]string{
		0x20: "kills", 0x47: "kills", 0xff: "kills", 0x00: "stalls", 0x0a: "stalls", 0x1f: "stalls", 0x0f: "stalls", 0x1a: "stalls",
	} {
		text := fmt.Sprintf("op 0x%02x %s", op, does)
		all[text] = violation{[]byte{op}, "H6", text}
	}
	for name, v := range all {
		subtest(t, name, func(t *testing.T, srv *mockserver.Server) {
			w := connect(t, srv)
			require.Equal(t, "01", w.ask(uint64.Insert{Key: []byte("k"), TTL: hours(century)}))
			w.send(set(longest))
			require.Equal(t, "01", w.received())
			require.Len(t, w.ask(codec.Get{Key: []byte("b")}), 2*(1+1+8+8+longest))
			require.Empty(t, srv.Violations())
			w.send(append(v.sent, frames(t, purge("k"))...))
			requireViolation(t, srv, w, v.rule)
			require.Equal(t, []string{"b", "k"}, srv.Keys(), "later requests are not executed")
			require.Contains(t, srv.Violations()[0].Text, v.text)
		}, mockserver.WithValueSize(8), virtual)
	}
}

func TestRunTFailsTheTestForEachViolation(t *testing.T) {
	var rec recorder
	path := filepath.Join(t.TempDir(), "s")
	mockserver.RunT(&rec, mockserver.WithAddr("unix", path))
	for range 2 {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		_, err = conn.Write([]byte{0x20})
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err)
		conn.Close()
	}
	require.Empty(t, rec.errors, "a violation fails the test at its end, not from another goroutine")
	require.Len(t, rec.cleanups, 1)
	rec.cleanups[0]()
	require.Len(t, rec.errors, 2)
	require.Contains(t, rec.errors[1], "H6: connection 2: op 0x20")
	_, err := net.Dial("unix", path)
	require.Error(t, err, "the server is closed")

	require.Nil(t, mockserver.RunT(&rec, mockserver.WithValueSize(3)))
	require.Regexp(t, "^fatal: .*value size", rec.errors[2])
}

// three are requests with different responses: 01, then a QUERY's, then 00.
var (
	threeResponses = "01" + "010500040900" + "00"
	three          = []codec.Frame{insert("k", 5, 10, codec.Seconds), query("k"), purge("missing")}
)

func (w *wire) askThree() string {
	w.t.Helper()
	return w.ask(three[0], three[1], three[2])
}

func TestFaultsChangeResponses(t *testing.T) {
	for name, c := range map[string]struct {
		fault mockserver.Fault
		want  string
	}{
		"drop":             {mockserver.Fault{Op: codec.OpQuery, Drop: true}, "01" + "00"},
		"duplicate":        {mockserver.Fault{Op: codec.OpQuery, Duplicate: true}, "01" + "010500040900010500040900" + "00"},
		"replace":          {mockserver.Fault{Op: codec.OpQuery, Replace: []byte{0xde, 0xad}}, "01" + "dead" + "00"},
		"replace, twice":   {mockserver.Fault{Op: codec.OpQuery, Replace: []byte{7}, Duplicate: true}, "01" + "0707" + "00"},
		"replace, nothing": {mockserver.Fault{Op: codec.OpQuery, Replace: []byte{}}, "01" + "00"},
		"any op":           {mockserver.Fault{Replace: []byte{7}}, "070707"},
		"skip":             {mockserver.Fault{Skip: 2, Replace: []byte{7}}, "01" + "010500040900" + "07"},
		"times":            {mockserver.Fault{Times: 2, Replace: []byte{7}}, "0707" + "00"},
		"skip and times":   {mockserver.Fault{Skip: 1, Times: 1, Replace: []byte{7}}, "01" + "07" + "00"},
		"another op":       {mockserver.Fault{Op: codec.OpGet, Drop: true}, threeResponses},
	} {
		subtest(t, name, func(t *testing.T, srv *mockserver.Server) {
			remove := srv.Inject(c.fault)
			w := connect(t, srv)
			require.Equal(t, c.want, w.askThree())
			require.Equal(t, []string{"k"}, srv.Keys(), "the request is executed")
			remove()
			remove()
			srv.Delete("k")
			require.Equal(t, threeResponses, w.askThree())
		}, virtual)
	}
}

func TestDelayHoldsBackLaterResponses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second})
		w := connect(t, srv)
		require.Equal(t, "01", w.askThree())
		require.Equal(t, 1, srv.Requests(codec.OpPurge), "the request is executed before the delay")
		time.Sleep(time.Second - 1)
		require.Empty(t, w.received())
		time.Sleep(time.Nanosecond)
		require.Equal(t, threeResponses[2:], w.received())

		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Delay: time.Second})
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Replace: []byte{7}}) // the first one applies
		w.ask(purge("k"))
		time.Sleep(time.Second)
		require.Equal(t, "01", w.received())
		w.askThree()
		time.Sleep(time.Second)
		require.Equal(t, threeResponses[2:], w.received(), "delayed responses do not wait for each other")
	}, virtual)
}

func TestDisconnectReplacesResponse(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true, Times: 1})
		w := connect(t, srv)
		w.send(frames(t, three[0], three[1], insert("after", 1, 1, codec.Hours)))
		pieces, closed := w.pieces()
		require.True(t, closed)
		require.Equal(t, [][]byte{{1}}, pieces)
		require.Equal(t, []string{"k"}, srv.Keys(), "later requests are not executed")
		require.Zero(t, srv.Conns())
		require.Empty(t, srv.Violations())

		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second})
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Disconnect: true})
		w = connect(t, srv)
		w.send(frames(t, query("k"), purge("k")))
		require.Empty(t, w.received())
		time.Sleep(time.Second)
		pieces, closed = w.pieces()
		require.True(t, closed)
		require.Len(t, pieces, 1, "earlier responses are sent first, delayed ones, too")
	})
}

func TestSplitBoundsWrites(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Split(3)
		w := connect(t, srv)
		w.send(frames(t, three[0], three[1], three[2]))
		sizes := func() (sizes []int) {
			pieces, _ := w.pieces()
			for _, p := range pieces {
				sizes = append(sizes, len(p))
			}
			return sizes
		}
		require.Equal(t, []int{3, 3, 2}, sizes())
		srv.Split(1)
		w.send(frames(t, three[1]))
		require.Equal(t, []int{1, 1, 1, 1, 1, 1}, sizes())
		srv.Split(0)
		w.send(frames(t, three[1]))
		require.Equal(t, []int{6}, sizes())
	})
}

func TestConnectionsAreCutAtEachByte(t *testing.T) {
	p := frames(t, three[0], three[1], three[2])
	ends := []int{len(frames(t, three[0])), len(frames(t, three[0], three[1])), len(p)}
	responses := []string{"", threeResponses[:2], threeResponses[:14], threeResponses}
	cut := func(t *testing.T, direction mockserver.Direction, n, length, executed int, want string) {
		bubble(t, func(t *testing.T, srv *mockserver.Server) {
			srv.Cut(mockserver.Cut{Direction: direction, After: n, Times: 1})
			w := connect(t, srv)
			w.send(p)
			pieces, closed := w.pieces()
			require.Equal(t, want, hex.EncodeToString(bytes.Join(pieces, nil)), "%v, %d bytes", direction, n)
			require.Equal(t, n < length, closed, "a connection is cut before the next byte, and there is none")
			require.Equal(t, executed, srv.Requests(codec.OpInsert)+srv.Requests(codec.OpQuery)+srv.Requests(codec.OpPurge))
			require.Empty(t, srv.Violations())
			require.Equal(t, "00", connect(t, srv).ask(query("missing")), "the next connection works")
		}, virtual)
	}
	for n := range len(threeResponses)/2 + 1 {
		cut(t, mockserver.ToClient, n, len(threeResponses)/2, 3, threeResponses[:2*n])
	}
	for n := range len(p) + 1 {
		complete := 0
		for complete < 3 && n >= ends[complete] {
			complete++
		}
		cut(t, mockserver.FromClient, n, len(p), complete, responses[complete])
	}
	require.Equal(t, "from client, to client", fmt.Sprintf("%v, %v", mockserver.FromClient, mockserver.ToClient))
}

func TestHalfOpenConnectionLosesAllBytes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Delay: time.Second})
		require.Empty(t, w.ask(purge("late")))
		srv.HalfOpen()
		require.Empty(t, w.ask(insert("k", 5, 10, codec.Seconds)))
		srv.Publish("*", nil)
		time.Sleep(2 * time.Second)
		require.Empty(t, w.received())
		require.False(t, w.closed())
		require.Empty(t, srv.Keys(), "nothing is executed")
		require.Equal(t, threeResponses[:14], connect(t, srv).ask(three[0], three[1]), "the next connection works")
		srv.Disconnect()
		require.True(t, w.closed())
	}, virtual)
}

func TestRecompileChangesTheValueSize(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, threeResponses, w.askThree())
		require.Error(t, srv.Recompile(3))
		require.Equal(t, []string{"k"}, srv.Keys())
		require.NoError(t, srv.Recompile(1))
		require.True(t, w.closed())
		require.Empty(t, srv.Keys())
		w = connect(t, srv)
		w.send([]byte{1, 5, 4, 10, 1, 'k', 2, 1, 'k'})
		require.Equal(t, "01"+"01050409", w.received())
	}, virtual)
}

func TestOverflowDropsResponses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second, Times: 1})
		w := connect(t, srv)
		require.Empty(t, w.ask(query("k")))
		for range 1024 {
			srv.Publish("c", nil)
		}
		require.Empty(t, w.ask(insert("k", 5, 10, codec.Seconds)))
		time.Sleep(time.Second)
		require.Equal(t, "00"+strings.Repeat("1901000063", 1023), w.received())
		require.Equal(t, []string{"k"}, srv.Keys(), "the request is executed")
		require.Equal(t, "00", w.ask(purge("missing")))
		require.Empty(t, srv.Violations())
	}, virtual, with(mockserver.Overflow))
}
