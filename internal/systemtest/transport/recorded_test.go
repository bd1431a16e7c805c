package transport_test

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
)

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
