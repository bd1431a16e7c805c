package fuzz_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

func FuzzClient8(f *testing.F)  { fuzzClient[uint8](f) }
func FuzzClient16(f *testing.F) { fuzzClient[uint16](f) }
func FuzzClient32(f *testing.F) { fuzzClient[uint32](f) }
func FuzzClient64(f *testing.F) { fuzzClient[uint64](f) }

// fuzzClient connects a client to a server that sends arbitrary bytes: as the response to
// the client's requests, or already to its probe.
func fuzzClient[T codec.Value](f *testing.F) {
	for _, tr := range transcripts[T](f) {
		f.Add(tr.received, 0, true)
	}
	all := encode(f, responses[T]()...)
	f.Add(all, 1, true)
	f.Add(append([]byte{1, 0, 0, 1, 0}, all...), 3, false)
	event := encode(f, codec.Event[T]{Channel: []byte("*"), Payload: []byte("p")})
	ok := encode[codec.Frame](f, codec.Success, codec.QueryResponse[T]{Found: true, Quota: 9}, codec.GetResponse[T]{Found: true})
	f.Add(append(event, ok...), 2, true)
	f.Add(append(ok[:len(ok):len(ok)], 0xff), 0, true)
	f.Fuzz(func(t *testing.T, response []byte, piece int, probed bool) {
		client, err := throttr.Connect[T](t.Context(), throttr.Config{
			Dial: dialScript[T](response, piece, probed), MaxConns: 1, MaxRetries: -1, ConnectTimeout: time.Minute,
		})
		if err != nil {
			require.False(t, probed, "the server has the right value size: %v", err)
			require.ErrorIs(t, err, throttr.ErrConnect)
			return
		}
		defer client.Close()
		if probed {
			checkBatch(t, client, response)
		}
	})
}

// dialScript returns a Dial. Its first connection waits for bytes from the client, sends
// script in pieces, and ends. If probed is true, it first plays its part in the handshake. A second
// connection is an error.
func dialScript[T codec.Value](script []byte, piece int, probed bool) func(context.Context, string, string) (net.Conn, error) {
	dialed := false
	return func(context.Context, string, string) (net.Conn, error) {
		if dialed {
			return nil, errors.New("no second connection")
		}
		dialed = true
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			buf := make([]byte, 1<<10)
			if probed {
				testkit.Handshake(server, codec.Size[T]())
			}
			server.Read(buf)
			write(server, script, piece)
		}()
		return client, nil
	}
}

// checkBatch sends three requests, and script is the response. If it has a response for
// each, they are the results; otherwise the batch must fail.
func checkBatch[T codec.Value](t *testing.T, client *throttr.Client[T], script []byte) {
	r := &reader[T]{rest: script}
	status, _ := next(r, codec.DecodeStatus)
	query, _ := next(r, codec.DecodeQueryResponse[T])
	get, responded := next(r, codec.DecodeGetResponse[T])

	var b throttr.Batch[T]
	update, counter, buffer := b.Update("k", codec.Quota, codec.Increase, 1), b.Query("k"), b.Get("k")
	err := client.Do(t.Context(), &b)
	if !responded {
		require.Error(t, err)
		require.False(t, testkit.SafeToRetry(err), "the requests were sent: %v", err)
		return
	}
	if len(r.rest) > 0 && err != nil { // the bytes behind may be an error in the protocol
		require.ErrorIs(t, err, throttr.ErrProtocol)
		require.False(t, testkit.SafeToRetry(err))
		return
	}
	require.NoError(t, err)
	ok, err := update.OK()
	require.NoError(t, err)
	require.Equal(t, bool(status), ok)
	c, ok, err := counter.Counter()
	require.NoError(t, err)
	require.Equal(t, query, codec.QueryResponse[T]{Found: ok, Quota: c.Quota, TTL: c.TTL})
	v, ok, err := buffer.Buffer()
	require.NoError(t, err)
	require.Equal(t, get.Found, ok)
	require.Equal(t, get.TTL, v.TTL)
	require.Equal(t, string(get.Value), string(v.Value))
}

// reader decodes the responses of a script, and skips EVENTs.
type reader[T codec.Value] struct {
	rest   []byte
	broken bool // decoding has failed
}

func next[T codec.Value, M any](r *reader[T], decode func([]byte) (M, int, error)) (m M, ok bool) {
	for !r.broken && len(r.rest) > 0 && codec.Op(r.rest[0]) == codec.OpEvent {
		_, n, err := codec.DecodeEvent[T](r.rest)
		r.broken = err != nil
		r.rest = r.rest[n:]
	}
	m, n, err := decode(r.rest)
	r.broken = r.broken || err != nil
	r.rest = r.rest[n:]
	return m, !r.broken
}

// write writes b in pieces of a size, or at once if it is 0, until the other side closes the
// connection.
func write(nc net.Conn, b []byte, size int) {
	if size <= 0 {
		size = max(1, len(b))
	}
	for piece := range slices.Chunk(b, size) {
		if _, err := nc.Write(piece); err != nil {
			return
		}
	}
}
