package mockserver_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

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
			for _, real := range []bool{false, true} {
				t.Run(fmt.Sprintf("uint%d/%s/real collector %v", bits, sc.Name, real), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						opts := []mockserver.Option{mockserver.WithValueSize(bits / 8), mockserver.WithAddr("memory", ""), virtual}
						if real {
							opts = append(opts, realCollector)
						}
						replay(t, mockserver.RunT(t, opts...), sc.Steps)
					})
				})
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
		require.True(t, matches(step.Recv, got), "step %d: %s\nwant %s\ngot  %s", n, step.Send, step.Recv, got)
		if step.Send == "18" {
			whoami = got[2:]
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
