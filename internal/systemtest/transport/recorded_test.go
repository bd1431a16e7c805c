package transport_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
)

// The methods send the bytes that a real server was sent, and return what it responded, in
// whatever pieces its bytes arrive.
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

// The methods decode long responses that a real server sent.
func TestMethodsDecodeRecordedListings(t *testing.T) {
	raw, err := os.ReadFile("../../../codec/testdata/responses-uint16.json")
	require.NoError(t, err)
	var rec struct {
		Keys        map[string][2]any
		Channels    []string
		Connections int
		Subscribers int    `json:"multi_subscribers"`
		List        string `json:"list"`
		Stats       string `json:"stats"`
		Conns       string `json:"connections_response"`
		Chans       string `json:"channels_response"`
		Multi       string `json:"channel_multi"`
		Info        string `json:"info"`
		WhoAmI      string `json:"whoami"`
	}
	require.NoError(t, json.Unmarshal(raw, &rec))
	responses := map[codec.Op][]byte{}
	for op, text := range map[codec.Op]string{
		codec.OpList: rec.List, codec.OpStats: rec.Stats, codec.OpConnections: rec.Conns, codec.OpChannels: rec.Chans,
		codec.OpChannel: rec.Multi, codec.OpInfo: rec.Info, codec.OpWhoAmI: rec.WhoAmI,
	} {
		responses[op], err = hex.DecodeString(text)
		require.NoError(t, err)
	}
	client := (&testkit.Fake[uint16]{Play: func(op codec.Op, nc net.Conn) bool {
		if op == codec.OpChannel {
			io.ReadFull(nc, make([]byte, 1+len("multi")))
		}
		_, err := nc.Write(responses[op])
		return err == nil
	}}).Client(t, throttr.Config{})
	ctx := t.Context()

	list, err := testkit.Collect(t, client.List(ctx))
	require.NoError(t, err)
	require.Len(t, list, len(rec.Keys))
	for _, e := range list {
		want, ok := rec.Keys[e.Key]
		require.True(t, ok, e.Key)
		require.Equal(t, want[0], e.Kind.String(), e.Key)
		require.Equal(t, 2026, e.ExpiresAt.Year())
		if e.Kind == inspect.Buffer {
			require.InDelta(t, want[1], e.BytesUsed, 0, e.Key)
		}
	}
	stats, err := testkit.Collect(t, client.KeyStats(ctx))
	require.NoError(t, err)
	require.Len(t, stats, len(rec.Keys))
	for _, e := range stats {
		require.Contains(t, rec.Keys, e.Key)
	}
	conns, err := testkit.Collect(t, client.Connections(ctx))
	require.NoError(t, err)
	require.Len(t, conns, rec.Connections)
	for _, e := range conns {
		require.Equal(t, "127.0.0.1", e.Addr.Addr().String())
		require.NotZero(t, e.Addr.Port())
	}
	chans, err := testkit.Collect(t, client.Channels(ctx))
	require.NoError(t, err)
	names := map[string]uint64{}
	for _, e := range chans {
		names[e.Name] = e.Connections
	}
	for _, name := range rec.Channels {
		require.Contains(t, names, name)
	}
	require.Equal(t, uint64(rec.Subscribers), names["multi"])
	subscribers, ok, err := client.Channel(ctx, "multi")
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, subscribers, rec.Subscribers)
	info, err := client.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, "5.0.11", info[0].Version)
	require.Equal(t, uint64(len(rec.Keys)), info[0].Keys)
	who, err := client.WhoAmI(ctx)
	require.NoError(t, err)
	require.Equal(t, rec.WhoAmI[2:], who[0].ID.String())
}
