package mockserver_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
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
							wires[step.Conn] = dial(t, srv)
						}
						w := wires[step.Conn]
						w.send(fromHex(t, step.Send))
						got := w.received()
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
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}
