package throttr_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

func TestRecordedConversationsThroughTheMethods(t *testing.T) {
	t.Run("uint8", testRecorded[uint8])
	t.Run("uint16", testRecorded[uint16])
	t.Run("uint32", testRecorded[uint32])
	t.Run("uint64", testRecorded[uint64])
}

// testRecorded has the methods send what a real server was sent, and answers them as it
// did; bytes that varied are zero.
func testRecorded[T codec.Value](t *testing.T) {
	raw, err := os.ReadFile(fmt.Sprintf("mockserver/testdata/throttr-uint%d.json", 8*codec.Size[T]()))
	require.NoError(t, err)
	var rec struct {
		Scenarios []struct {
			Name  string
			Steps []struct{ Send, Recv string }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &rec))
	played := map[codec.Op]int{}
	for _, sc := range rec.Scenarios {
		if sc.Name == "split_frame" { // its steps are pieces of requests
			continue
		}
		for i, step := range sc.Steps {
			send, err := hex.DecodeString(strings.ReplaceAll(step.Send, "{whoami}", strings.Repeat("00", 16)))
			require.NoError(t, err)
			recv, err := hex.DecodeString(strings.ReplaceAll(step.Recv, "?", "0"))
			require.NoError(t, err)
			r, n, err := codec.DecodeRequest[T](send)
			if err != nil || n != len(send) || len(recv) == 0 {
				continue // no single request
			}
			f := &fake[T]{play: func(op codec.Op, nc net.Conn) bool {
				got := make([]byte, len(send))
				got[0] = byte(op)
				if _, err := io.ReadFull(nc, got[1:]); err == nil && !bytes.Equal(send, got) {
					t.Errorf("%s, step %d: sent %x, not %x", sc.Name, i, got, send)
				}
				_, err := nc.Write(recv)
				return err == nil
			}}
			client := clientOf(t, f, once(throttr.Config{StallTimeout: time.Second}))
			ok, known, err := invoke(t.Context(), client, r)
			if known {
				require.NoError(t, err, "%s, step %d", sc.Name, i)
				require.Equal(t, recv[0] == 1 || recv[len(recv)-1] == 1 && recv[0] == byte(codec.OpEvent), ok, "%s, step %d", sc.Name, i)
				played[r.Op()]++
			}
			client.Close()
		}
	}
	require.Len(t, played, 16, "all but SUBSCRIBE and UNSUBSCRIBE")
}

func TestLargeRecordedAnswersThroughTheMethods(t *testing.T) {
	raw, err := os.ReadFile("codec/testdata/responses-uint16.json")
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
	answers := map[codec.Op][]byte{}
	for op, text := range map[codec.Op]string{
		codec.OpList: rec.List, codec.OpStats: rec.Stats, codec.OpConnections: rec.Conns, codec.OpChannels: rec.Chans,
		codec.OpChannel: rec.Multi, codec.OpInfo: rec.Info, codec.OpWhoAmI: rec.WhoAmI,
	} {
		answers[op], err = hex.DecodeString(text)
		require.NoError(t, err)
	}
	client := clientOf(t, &fake[uint16]{play: func(op codec.Op, nc net.Conn) bool {
		if op == codec.OpChannel {
			io.ReadFull(nc, make([]byte, 1+len("multi")))
		}
		_, err := nc.Write(answers[op])
		return err == nil
	}}, throttr.Config{})
	ctx := t.Context()

	list, err := drain(t, client.List(ctx))
	require.NoError(t, err)
	require.Len(t, list, len(rec.Keys))
	for _, e := range list {
		want, ok := rec.Keys[e.Key]
		require.True(t, ok, e.Key)
		require.Equal(t, want[0], e.Kind.String(), e.Key)
		require.Equal(t, 2026, e.ExpiresAt.Year())
		if e.Kind == throttr.KindBuffer {
			require.InDelta(t, want[1], e.BytesUsed, 0, e.Key)
		}
	}
	stats, err := drain(t, client.KeyStats(ctx))
	require.NoError(t, err)
	require.Len(t, stats, len(rec.Keys))
	for _, e := range stats {
		require.Contains(t, rec.Keys, e.Key)
	}
	conns, err := drain(t, client.Connections(ctx))
	require.NoError(t, err)
	require.Len(t, conns, rec.Connections)
	for _, e := range conns {
		require.Equal(t, "127.0.0.1", e.Addr.Addr().String())
		require.NotZero(t, e.Addr.Port())
	}
	chans, err := drain(t, client.Channels(ctx))
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

// invoke calls the method that sends r, and returns whether the answer was yes. What the
// client would refuse, or ask a question before, is not known.
func invoke[T codec.Value](ctx context.Context, c *throttr.Client[T], r codec.Request) (ok, known bool, err error) {
	known = true
	switch r := r.(type) {
	case codec.Insert[T]:
		if known = r.TTL.Amount > 0 && r.TTL.Unit.Known(); known {
			ok, err = c.Insert(ctx, string(r.Key), r.Quota, r.TTL)
		}
	case codec.Query:
		_, ok, err = c.Query(ctx, string(r.Key))
	case codec.Update[T]:
		if known = r.Attribute == codec.Quota && r.Change <= codec.Decrease; known {
			ok, err = c.Update(ctx, string(r.Key), r.Attribute, r.Change, r.Value)
		}
	case codec.Purge:
		ok, err = c.Purge(ctx, string(r.Key))
	case codec.Set[T]:
		if known = r.TTL.Amount > 0 && r.TTL.Unit.Known(); known {
			ok, err = c.Set(ctx, string(r.Key), r.Value, r.TTL)
		}
	case codec.Get:
		_, ok, err = c.Get(ctx, string(r.Key))
	case codec.Stat:
		_, ok, err = c.Stat(ctx, string(r.Key))
	case codec.Publish[T]:
		ok, err = c.Publish(ctx, string(r.Channel), r.Payload)
	case codec.Connection:
		_, ok, err = c.Connection(ctx, throttr.DefaultServer, r.ID)
	case codec.Channel:
		_, ok, err = c.Channel(ctx, string(r.Name))
	case codec.Info:
		_, err = c.Info(ctx)
		ok = true
	case codec.WhoAmI:
		_, err = c.WhoAmI(ctx)
		ok = true
	case codec.List:
		ok = true
		for _, err = range c.List(ctx) {
		}
	case codec.Stats:
		ok = true
		for _, err = range c.KeyStats(ctx) {
		}
	case codec.Connections:
		ok = true
		for _, err = range c.Connections(ctx) {
		}
	case codec.Channels:
		ok = true
		for _, err = range c.Channels(ctx) {
		}
	default:
		known = false
	}
	return ok, known, err
}
