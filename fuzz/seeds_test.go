package fuzz_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// transcript holds the bytes that a real server received and sent on a connection.
type transcript struct{ sent, received []byte }

// transcripts returns the conversations with a server of value size T.
func transcripts[T codec.Value](tb testing.TB) (all []transcript) {
	file, err := os.ReadFile(fmt.Sprintf("../mockserver/testdata/throttr-uint%d.json", 8*codec.Size[T]()))
	require.NoError(tb, err)
	var rec struct {
		Scenarios []struct {
			Steps []struct {
				Conn       int
				Send, Recv string
			}
		}
	}
	require.NoError(tb, json.Unmarshal(file, &rec))
	for _, sc := range rec.Scenarios {
		var conns [2]transcript
		for _, step := range sc.Steps {
			tr := &conns[step.Conn]
			tr.sent = append(tr.sent, unhex(tb, strings.ReplaceAll(step.Send, "{whoami}", strings.Repeat("?", 32)))...)
			tr.received = append(tr.received, unhex(tb, step.Recv)...)
		}
		for _, tr := range conns {
			if len(tr.sent) > 0 {
				all = append(all, tr)
			}
		}
	}
	require.NotEmpty(tb, all)
	return all
}

// unhex returns the bytes of s, with a zero for every byte that varied.
func unhex(tb testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "?", "0"))
	require.NoError(tb, err)
	return b
}

// encode returns the bytes of all frames.
func encode[M codec.Frame](tb testing.TB, frames ...M) []byte {
	var b []byte
	var err error
	for _, f := range frames {
		b, err = f.AppendBinary(b)
		require.NoError(tb, err)
	}
	return b
}

// responses has one response of every kind and form.
func responses[T codec.Value]() []codec.Response {
	ttl := codec.TTL[T]{Amount: 60, Unit: codec.Seconds}
	return []codec.Response{
		codec.Success,
		codec.Failure,
		codec.QueryResponse[T]{},
		codec.QueryResponse[T]{Found: true, Quota: ^T(0), TTL: ttl},
		codec.GetResponse[T]{},
		codec.GetResponse[T]{Found: true, TTL: ttl, Value: []byte("value")},
		codec.Event[T]{Channel: []byte("news"), Payload: make([]byte, 255)},
		codec.ListResponse[T]{},
		codec.ListResponse[T]{Fragments: [][]codec.ListEntry[T]{
			{{Key: []byte("key"), Buffer: true, Unit: codec.Hours, Expires: 1 << 60, Bytes: 5}, {}},
			{},
			{{Key: make([]byte, codec.MaxKey), Unit: codec.Seconds, Bytes: ^T(0)}},
		}},
		codec.StatResponse{},
		codec.StatResponse{Found: true, Usage: codec.Usage{Reads: 1 << 40}},
		codec.StatsResponse{Fragments: [][]codec.StatsEntry{{{Key: []byte("key")}, {Usage: codec.Usage{Writes: 7}}}, {{}}}},
		codec.ConnectionsResponse{Fragments: [][]codec.ConnectionInfo{{{IP: "127.0.0.1", Port: 9000}, {}}, {{}}}},
		codec.ConnectionResponse{},
		codec.ConnectionResponse{Found: true, Connection: codec.ConnectionInfo{IP: "::1"}},
		codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{{{Name: []byte("*"), Connections: 3}, {}}}},
		codec.ChannelResponse{},
		codec.ChannelResponse{Found: true, Subscribers: make([]codec.Subscriber, 3)},
		codec.InfoResponse{Timestamp: 1 << 33, Version: "5.0.11"},
		codec.WhoAmIResponse{ID: codec.ConnID{1, 2, 3}},
	}
}
