package transport_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

// The methods send the bytes that a real server was sent, and return what it responded, in
// whatever pieces its bytes arrive.
//
//evidence:client The methods send what a real server was sent, and understand its responses
func TestMethodsMatchRecordedConversations(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, piece := range map[string]func() int{
		"whole":         func() int { return 1 << 20 },
		"byte by byte":  func() int { return 1 },
		"random pieces": func() int { return 1 + rnd.IntN(30) },
	} {
		t.Run(name+"/uint8", func(t *testing.T) { testRecorded[uint8](t, piece) })
		t.Run(name+"/uint16", func(t *testing.T) { testRecorded[uint16](t, piece) })
		t.Run(name+"/uint32", func(t *testing.T) { testRecorded[uint32](t, piece) })
		t.Run(name+"/uint64", func(t *testing.T) { testRecorded[uint64](t, piece) })
	}
}

type scenario struct {
	Name  string
	Steps []struct {
		Conn       int
		Send, Recv string
	}
}

// testRecorded replays the recordings of a server of T. The responses come in pieces of the
// sizes that piece returns.
func testRecorded[T codec.Value](t *testing.T, piece func() int) {
	raw, err := os.ReadFile(fmt.Sprintf("../../../mockserver/testdata/throttr-uint%d.json", 8*codec.Size[T]()))
	require.NoError(t, err)
	var rec struct{ Scenarios []scenario }
	require.NoError(t, json.Unmarshal(raw, &rec))
	require.Len(t, rec.Scenarios, 20)
	seen := replayed{}
	for _, sc := range rec.Scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replay[T](t, sc, seen, piece) })
		})
	}
	for _, kind := range []any{
		codec.OpInsert, codec.OpQuery, codec.OpUpdate, codec.OpPurge, codec.OpSet, codec.OpGet,
		codec.OpList, codec.OpInfo, codec.OpStat, codec.OpStats, codec.OpSubscribe, codec.OpUnsubscribe, codec.OpPublish,
		codec.OpConnections, codec.OpConnection, codec.OpChannels, codec.OpChannel, codec.OpWhoAmI, codec.OpEvent,
		throttr.ErrTTL, throttr.ErrUpdate,
	} {
		require.NotZero(t, seen[kind], kind)
	}
}

// replayed counts requests and EVENTs by their op, and requests that the client rejects by the
// error.
type replayed map[any]int

// replay replays a scenario. Each of its connections becomes a client, because a client has
// its subscriptions and its requests on different connections.
func replay[T codec.Value](t *testing.T, sc scenario, seen replayed, piece func() int) {
	peers := map[int]*peer[T]{}
	pending := map[int]string{} // requests that are not complete
	for _, step := range sc.Steps {
		p := peers[step.Conn]
		if p == nil {
			p = newPeer[T](t, seen, piece)
			peers[step.Conn] = p
		}
		switch pending[step.Conn] += step.Send; {
		case pending[step.Conn] == "":
			p.deliver(parseHex(t, 0, step.Recv))
		case step.Recv != "":
			send := parseHex(t, 0, strings.ReplaceAll(pending[step.Conn], "{whoami}", strings.Repeat("?", 32)))
			pending[step.Conn] = ""
			p.step(send, parseHex(t, codec.Op(send[0]), step.Recv))
		}
	}
	for n, rest := range pending {
		require.Empty(t, rest, "connection %d: not replayed", n)
	}
}

// parseHex parses hex digits of a response to op. The recordings have "??" for bytes that vary
// from run to run. They become 0x11, except for those that the frame depends on: in the
// response to CHANNELS, the lengths of the names "*", an id, and "c1"; in the entry of a
// connection, the address.
func parseHex(t *testing.T, op codec.Op, digits string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(digits, "?", "1"))
	require.NoError(t, err)
	const head = 1 + 3*8 // of a response in fragments
	address := []byte("\x00\x00\x04127.0.0.1\x00\x00\x00\x00\x00\x00\x00")
	switch {
	case op == codec.OpChannels:
		for i, n := range []byte{1, 32, 2} {
			b[head+i*(1+3*8)] = n
		}
	case op == codec.OpConnections:
		copy(b[head+16:], address)
	case op == codec.OpConnection && len(b) > 1:
		copy(b[1+16:], address)
	}
	return b
}
