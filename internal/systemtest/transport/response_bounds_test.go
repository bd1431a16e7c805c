package transport_test

import (
	"context"
	"encoding/binary"
	"iter"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// minMaxResponse is the smallest Config.MaxResponse.
const minMaxResponse = 24 << 10

// responding returns a client of a server that responds to one kind of request with response, and counts the bytes that
// the client reads.
func responding[T codec.Value](t *testing.T, op codec.Op, response []byte, cfg throttr.Config) (*throttr.Client[T], *testkit.Traffic) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
	traffic := new(testkit.Traffic)
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		return traffic.Count(nc), err
	}
	client := testkit.Connect[T](t, srv, cfg)
	traffic[mockserver.ToClient].Store(0)
	srv.Inject(mockserver.Fault{Op: op, Replace: response, Drop: response == nil})
	return client, traffic
}

// numbers encodes numbers of 8 bytes.
func numbers(ns ...uint64) []byte {
	var b []byte
	for _, n := range ns {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// unbounded returns the calls whose responses the protocol does not bound.
func unbounded(t *testing.T, c *throttr.Client[uint16]) map[codec.Op]func() error {
	return map[codec.Op]func() error{
		codec.OpList:        func() error { return lastError(t, c.List(t.Context())) },
		codec.OpStats:       func() error { return lastError(t, c.KeyStats(t.Context())) },
		codec.OpConnections: func() error { return lastError(t, c.Connections(t.Context())) },
		codec.OpChannels:    func() error { return lastError(t, c.Channels(t.Context())) },
		codec.OpChannel: func() error {
			_, _, err := c.Channel(t.Context(), "c")
			return err
		},
	}
}

// lastError returns the error that an iteration ends with.
func lastError[E any](t *testing.T, seq iter.Seq2[E, error]) error {
	_, err := testkit.Collect(t, seq)
	return err
}

// A response announces as many entries as there can be and does not end. The client closes the
// connection, and has read at most two buffers more than Config.MaxResponse.
func TestEndlessResponseIsRejected(t *testing.T) {
	cfg := throttr.Config{MaxResponse: minMaxResponse, MaxRetries: -1} // the bound is that of a connection
	for op := range unbounded(t, nil) {
		t.Run(op.String(), func(t *testing.T) {
			beginning := slices.Concat([]byte{1}, numbers(1, 1, 1<<64-1))
			if op == codec.OpChannel {
				beginning = slices.Concat([]byte{1}, numbers(1<<64-1))
			}
			client, traffic := responding[uint16](t, op, append(beginning, make([]byte, 1<<20)...), cfg)
			require.ErrorIs(t, unbounded(t, client)[op](), throttr.ErrProtocol)
			client.Close()
			require.LessOrEqual(t, traffic[mockserver.ToClient].Load(), int64(minMaxResponse+2*16<<10+1<<10))
		})
	}
}

// The smallest Config.MaxResponse is enough for each fragment that a server sends, and the longest response to CHANNEL
// that fits a larger one is accepted.
func TestResponseAsLongAsAllowedIsAccepted(t *testing.T) {
	longest := make([]codec.ChannelsEntry, 2048/25) // that a server puts into a fragment: it does not count names
	for i := range longest {
		longest[i].Name = make([]byte, codec.MaxKey)
	}
	response := testkit.Encode(t, codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{longest}})
	client, _ := responding[uint16](t, codec.OpChannels, response, throttr.Config{MaxResponse: minMaxResponse})
	channels, err := testkit.Collect(t, client.Channels(t.Context()))
	require.NoError(t, err)
	require.Len(t, channels, len(longest))

	const most = 25 << 10 // more than one read, and less than two
	fit := make([]codec.Subscriber, (most-9)/40)
	response = testkit.Encode(t, codec.ChannelResponse{Found: true, Subscribers: fit})
	client, _ = responding[uint16](t, codec.OpChannel, response, throttr.Config{MaxResponse: most})
	subscribers, ok, err := client.Channel(t.Context(), "c")
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, subscribers, len(fit))
}
