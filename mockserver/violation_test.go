package mockserver_test

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint64"
	"github.com/throttr-go/throttr/mockserver"
)

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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *mockserver.Server) {
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
		t.Run(fmt.Sprintf("%02x", op), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *mockserver.Server) {
				w := connect(t, srv)
				p := append(frames(t, insert("before", 1, 1, codec.Hours)), op)
				w.send(append(p, frames(t, insert("after", 1, 1, codec.Hours))...))
				requireViolation(t, srv, w, rule)
				require.Equal(t, []string{"before"}, srv.Keys(), "later requests are not executed")
				require.Contains(t, srv.Violations()[0].Text, text)
				require.Contains(t, srv.Violations()[0].Text, fmt.Sprintf("0x%02x", op))
			})
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *mockserver.Server) {
				w := connect(t, srv)
				require.Equal(t, "01", w.ask(uint64.Insert{Key: []byte("k"), TTL: hours(century)}))
				w.send(frames(t, frame))
				requireViolation(t, srv, w, "H13")
				require.Equal(t, []string{"k"}, srv.Keys())
			}, mockserver.WithValueSize(8), virtual)
		})
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
