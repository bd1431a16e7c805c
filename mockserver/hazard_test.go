package mockserver_test

import (
	"encoding"
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

func TestResponsesThatAClientLeavesUnreadLeak(t *testing.T) {
	subtest(t, "memory", func(t *testing.T, srv *mockserver.Server) {
		sending := func(n int) net.Conn {
			nc, err := srv.Dial(t.Context())
			require.NoError(t, err)
			_, err = nc.Write(flood(t, n))
			require.NoError(t, err)
			synctest.Wait() // all of them are executed
			return nc
		}
		nc := sending(64)
		_, err := io.ReadFull(nc, make([]byte, 14))
		require.NoError(t, err)
		nc.Close()
		synctest.Wait()
		require.Equal(t, 50, srv.Leaked())

		sending(10)
		srv.Disconnect()
		require.Zero(t, srv.Publish("*", nil), "nobody is left")
		synctest.Wait()
		require.Equal(t, 50, srv.Leaked(), "the server ended that connection")

		srv.Inject(mockserver.Fault{Delay: time.Hour})
		sending(10).Close()
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

func TestFrameOver8096BytesIsAViolation(t *testing.T) {
	// A SET whose key and value fill the buffer to the last byte, and one more.
	set := func(value int) []byte {
		b := fromHex(t, "0506010001")
		b = append(b, byte(value), byte(value>>8), 'k')
		return append(b, make([]byte, value)...)
	}
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		w.send(set(8088))
		require.Equal(t, "01", w.received())
		require.Len(t, w.ask(codec.Get{Key: []byte("k")}), 2*(6+8088))
		require.Empty(t, srv.Violations())
		w.send(set(8089)[:9])
		requireViolation(t, srv, w, "H5")
	})
}

func TestUnknownOpsAreAViolation(t *testing.T) {
	for op, text := range map[byte]string{
		0x20: "kills", 0x47: "kills", 0xff: "kills",
		0x00: "stalls", 0x0a: "stalls", 0x1f: "stalls", 0x0f: "stalls", 0x1a: "stalls", 0x19: "executed as a command",
	} {
		rule := "H6"
		if op == byte(codec.OpEvent) {
			rule = "H27"
		}
		subtest(t, fmt.Sprintf("%02x", op), func(t *testing.T, srv *mockserver.Server) {
			w := connect(t, srv)
			p := append(frames(t, insert("before", 1, 1, codec.Hours)), op)
			w.send(append(p, frames(t, insert("after", 1, 1, codec.Hours))...))
			requireViolation(t, srv, w, rule)
			require.Equal(t, []string{"before"}, srv.Keys(), "later requests are not executed")
			require.Contains(t, srv.Violations()[0].Text, text)
			require.Contains(t, srv.Violations()[0].Text, fmt.Sprintf("0x%02x", op))
		})
	}
}

func TestTTLThatOverflowsIsAViolation(t *testing.T) {
	hours := func(n uint64.Value) uint64.TTL { return uint64.TTL{Amount: n, Unit: codec.Hours} }
	ttl := func(change codec.Change, value uint64.Value) uint64.Update {
		return uint64.Update{Attribute: codec.TimeToLive, Change: change, Value: value, Key: []byte("k")}
	}
	const century = 100 * 365 * 24
	for name, frame := range map[string]codec.Frame{
		"insert":         uint64.Insert{Key: []byte("new"), TTL: hours(math.MaxUint64)},
		"insert, 600 y":  uint64.Insert{Key: []byte("new"), TTL: hours(6 * century)},
		"insert, failed": uint64.Insert{Key: []byte("k"), TTL: hours(math.MaxUint64)},
		"set":            uint64.Set{Key: []byte("new"), TTL: hours(math.MaxUint64)},
		"patch":          ttl(codec.Patch, math.MaxUint64),
		"increase":       ttl(codec.Increase, 5*century),
		"decrease":       ttl(codec.Decrease, 3*century),
	} {
		subtest(t, name, func(t *testing.T, srv *mockserver.Server) {
			w := connect(t, srv)
			require.Equal(t, "01", w.ask(uint64.Insert{Key: []byte("k"), TTL: hours(century)}))
			w.send(frames(t, frame))
			requireViolation(t, srv, w, "H13")
			require.Equal(t, []string{"k"}, srv.Keys())
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
