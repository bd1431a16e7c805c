package fuzz_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

func FuzzServer8(f *testing.F)  { fuzzServer[uint8](f) }
func FuzzServer16(f *testing.F) { fuzzServer[uint16](f) }
func FuzzServer32(f *testing.F) { fuzzServer[uint32](f) }
func FuzzServer64(f *testing.F) { fuzzServer[uint64](f) }

// fuzzServer sends arbitrary bytes to the mock server.
func fuzzServer[T codec.Value](f *testing.F) {
	for _, tr := range transcripts[T](f) {
		f.Add(tr.sent, 0)
	}
	all := encode(f, requests[T]()...)
	f.Add(all, 1)
	f.Add(append(all[:len(all):len(all)], 0xff), 7)
	f.Add(append(all[:len(all):len(all)], 0x0a), 0)
	f.Fuzz(func(t *testing.T, sent []byte, piece int) {
		srv, err := mockserver.Start(mockserver.WithVirtualClock(), mockserver.WithValueSize(codec.Size[T]()),
			mockserver.WithAddr("memory", "fuzz:1"))
		require.NoError(t, err)
		kinds, why := split[T](sent)
		responded := send[T](t, srv, sent, piece, kinds, why != nil)
		if len(srv.Violations()) == 0 {
			require.NoError(t, why, "bytes that are not a request are a violation")
			require.Equal(t, len(kinds), responded, "every request has a response")
		}
		probe := encode(t, codec.Query{Key: []byte("key")})
		require.Equal(t, 1, send[T](t, srv, probe, 0, []codec.Kind{codec.KindQuery}, false), "the server goes on")
		require.NoError(t, srv.Close())
	})
}

// split returns the kinds of the responses to the requests at the start of b, and the error
// of decoding the next one: nil if b ends there, or within a request.
func split[T codec.Value](b []byte) (kinds []codec.Kind, why error) {
	for {
		req, n, err := codec.DecodeRequest[T](b)
		if errors.Is(err, codec.ErrShort) {
			return kinds, nil
		}
		if err != nil {
			return kinds, err
		}
		kinds = append(kinds, req.ResponseKind())
		b = b[n:]
	}
}

// send sends b in pieces of a size and returns how many responses come back. It reads until
// every request has one, or the connection ends. If toTheEnd is true, it requires that the
// server ends the connection after them.
func send[T codec.Value](t *testing.T, srv *mockserver.Server, b []byte, piece int, kinds []codec.Kind, toTheEnd bool) int {
	nc, err := srv.Dial(context.Background())
	require.NoError(t, err)
	defer nc.Close()
	go write(nc, b, piece)
	dec := codec.NewDecoder[T](nc)
	for i, kind := range kinds {
		if err := response(dec, kind); err != nil {
			require.NotErrorIs(t, err, codec.ErrMalformed)
			return i
		}
	}
	if toTheEnd {
		err := response(dec, codec.KindStatus)
		require.Error(t, err, "there is no response to bytes that are not a request")
		require.NotErrorIs(t, err, codec.ErrMalformed)
	}
	return len(kinds)
}

// response reads a response and the EVENTs before it: the requests can subscribe and publish.
func response[T codec.Value](dec *codec.Decoder[T], kind codec.Kind) error {
	for {
		res, err := dec.Response(kind)
		if err != nil || res.Kind() != codec.KindEvent {
			return err
		}
	}
}

// write writes b in pieces of a size, or at once if it is 0, until the other side closes the
// connection.
func write(nc net.Conn, b []byte, piece int) {
	if piece <= 0 {
		piece = max(1, len(b))
	}
	for len(b) > 0 {
		n := min(piece, len(b))
		if _, err := nc.Write(b[:n]); err != nil {
			return
		}
		b = b[n:]
	}
}
