package fuzz_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

func FuzzClient8(f *testing.F)  { fuzzClient[uint8](f) }
func FuzzClient16(f *testing.F) { fuzzClient[uint16](f) }
func FuzzClient32(f *testing.F) { fuzzClient[uint32](f) }
func FuzzClient64(f *testing.F) { fuzzClient[uint64](f) }

// fuzzClient has a server answer with arbitrary bytes: to the client's requests, or to
// its probe already.
func fuzzClient[T codec.Value](f *testing.F) {
	for _, tr := range transcripts[T](f) {
		f.Add(tr.received, 0, true)
	}
	var answers []codec.Frame
	for _, r := range responses[T]() {
		answers = append(answers, r)
	}
	all := encode(f, answers...)
	f.Add(all, 1, true)
	f.Add(append([]byte{1, 0, 0, 1, 0}, all...), 3, false)
	event := encode(f, codec.Event[T]{Channel: []byte("*"), Payload: []byte("p")})
	ok := encode(f, codec.Success, codec.QueryResponse[T]{Found: true, Quota: 9}, codec.GetResponse[T]{Found: true})
	f.Add(append(event, ok...), 2, true)
	f.Add(append(ok[:len(ok):len(ok)], 0xff), 0, true)
	f.Fuzz(func(t *testing.T, answer []byte, piece int, probed bool) {
		client, err := throttr.Connect[T](t.Context(), throttr.Config{
			Dial: dialScript[T](answer, piece, probed), MaxConns: 1, MaxRetries: -1, ConnectTimeout: time.Minute,
		})
		if err != nil {
			require.False(t, probed, "a server of the right size: %v", err)
			require.ErrorIs(t, err, throttr.ErrConnect)
			return
		}
		defer client.Close()
		if probed {
			checkBatch(t, client, answer)
		}
	})
}

// dialScript returns a Dial whose first connection sends a script in pieces, once the
// client has sent something, and ends. If probed, it answers the probe first. There is no
// second connection.
func dialScript[T codec.Value](script []byte, piece int, probed bool) func(context.Context, string, string) (net.Conn, error) {
	dialled := false
	return func(context.Context, string, string) (net.Conn, error) {
		if dialled {
			return nil, errors.New("no second connection")
		}
		dialled = true
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			heard := make([]byte, 1<<10)
			if probed {
				server.Read(heard)
				server.Write(probeAnswer(codec.Size[T]()))
			}
			server.Read(heard)
			write(server, script, piece)
		}()
		return client, nil
	}
}

// probeAnswer is what a server of a value size answers to a probe.
func probeAnswer(size int) []byte {
	return map[int][]byte{1: {1, 1, 0, 0, 0}, 2: {1, 0, 1, 0, 0}, 4: {1, 0, 0, 1, 0}, 8: {1, 0, 0, 0, 1}}[size]
}

// checkBatch sends three requests, which the script answers. They have its answers if it
// has one for each, and an error otherwise.
func checkBatch[T codec.Value](t *testing.T, client *throttr.Client[T], script []byte) {
	r := &reader[T]{rest: script}
	status, _ := next(r, codec.DecodeStatus)
	query, _ := next(r, codec.DecodeQueryResponse[T])
	get, answered := next(r, codec.DecodeGetResponse[T])

	var b throttr.Batch[T]
	update, counter, buffer := b.Update("k", codec.Quota, codec.Increase, 1), b.Query("k"), b.Get("k")
	err := client.Do(t.Context(), &b)
	if !answered {
		require.Error(t, err)
		require.False(t, throttr.SafeToRetry(err), "it has been sent: %v", err)
		return
	}
	if len(r.rest) > 0 && err != nil { // what came behind may show that these answers are not
		require.ErrorIs(t, err, throttr.ErrProtocol)
		require.False(t, throttr.SafeToRetry(err))
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
	broken bool // there is something that can't be a response, or the script has ended
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
