package mockserver_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// replayed are the scenarios of the recorded transcripts whose requests this
// server plays.
var replayed = []string{
	"insert_query_purge", "update_quota", "increase_wraps", "update_ttl", "ttl_units", "expiry_grace", "pipeline",
	"split_frame", "edge_keys", "invalid_fields", "buffers", "value_size_probe", "random_1",
}

type transcript struct {
	ValueSize int `json:"value_size"`
	Scenarios []struct {
		Name  string
		Steps []struct {
			Conn      int
			Send      string
			Recv      string
			AdvanceMS int `json:"advance_ms"`
		}
	}
}

func TestAnswersAsTheRealServerDid(t *testing.T) {
	for _, bits := range []int{8, 16, 32, 64} {
		raw, err := os.ReadFile(fmt.Sprintf("testdata/throttr-uint%d.json", bits))
		require.NoError(t, err)
		var rec transcript
		require.NoError(t, json.Unmarshal(raw, &rec))
		require.Equal(t, bits/8, rec.ValueSize)
		seen := map[string]int{}
		for i, sc := range rec.Scenarios {
			seen[sc.Name] = i
		}
		for _, name := range replayed {
			i, ok := seen[name]
			require.True(t, ok, "no scenario %s for uint%d", name, bits)
			steps := rec.Scenarios[i].Steps
			t.Run(fmt.Sprintf("uint%d/%s", bits, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := mockserver.RunT(t, mockserver.WithValueSize(bits/8),
						mockserver.WithAddr("memory", ""), mockserver.WithVirtualClock())
					wires := map[int]*wire{}
					for n, step := range steps {
						srv.Advance(time.Duration(max(step.AdvanceMS, 1)) * time.Millisecond)
						if step.AdvanceMS > 0 {
							continue
						}
						if wires[step.Conn] == nil {
							wires[step.Conn] = dialWire(t, srv)
						}
						w := wires[step.Conn]
						w.send(fromHex(t, step.Send))
						got := hex.EncodeToString(w.received())
						require.True(t, matches(step.Recv, got), "step %d: %s\nwant %s\ngot  %s", n, step.Send, step.Recv, got)
					}
				})
			})
		}
	}
}

// matches compares hex digits; "??" in want matches any byte.
func matches(want, got string) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != '?' && want[i] != got[i] {
			return false
		}
	}
	return true
}

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// wire is a connection inside a synctest bubble. What arrives is collected in
// the background, so that silence can be told without waiting for it.
type wire struct {
	t    *testing.T
	conn net.Conn
	got  chan []byte
}

func dialWire(t *testing.T, srv *mockserver.Server) *wire {
	t.Helper()
	conn, err := srv.Dial(context.Background())
	require.NoError(t, err)
	w := &wire{t: t, conn: conn, got: make(chan []byte, 4096)}
	t.Cleanup(func() { conn.Close() })
	go func() {
		defer close(w.got)
		for {
			buf := make([]byte, 4096)
			n, err := conn.Read(buf)
			if n > 0 {
				w.got <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return w
}

func (w *wire) send(p []byte) {
	w.t.Helper()
	if len(p) > 0 {
		_, err := w.conn.Write(p)
		require.NoError(w.t, err)
	}
}

// received returns what has arrived since the last call, once nothing more can
// arrive without time passing.
func (w *wire) received() []byte {
	synctest.Wait()
	var all []byte
	for {
		select {
		case p, open := <-w.got:
			if !open {
				return all
			}
			all = append(all, p...)
		default:
			return all
		}
	}
}

// closed reports whether the server has ended the connection; what had arrived
// before is dropped.
func (w *wire) closed() bool {
	synctest.Wait()
	for {
		select {
		case _, open := <-w.got:
			if !open {
				return true
			}
		default:
			return false
		}
	}
}

