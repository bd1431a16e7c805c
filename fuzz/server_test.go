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
		answered := converse[T](t, srv, sent, piece, kinds, why != nil)
		if len(srv.Violations()) == 0 {
			require.NoError(t, why, "bytes that are no request are a violation")
			require.Equal(t, len(kinds), answered, "every request is answered")
		}
		probe := encode(t, codec.Query{Key: []byte("key")})
		require.Equal(t, 1, converse[T](t, srv, probe, 0, []codec.Kind{codec.KindQuery}, false), "the server goes on")
		require.NoError(t, srv.Close())
	})
}

// split returns the kinds of the responses to the requests that b begins with, and why
// there are no more of them: nil if b ends with the last one, or within one.
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

// converse sends b in pieces of a size and returns how many responses come back. It
// listens until there is one to each request, or, if the server is to end the
// connection, until it has.
func converse[T codec.Value](t *testing.T, srv *mockserver.Server, b []byte, piece int, kinds []codec.Kind, toTheEnd bool) int {
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
		require.Error(t, err, "nothing answers what is no request")
		require.NotErrorIs(t, err, codec.ErrMalformed)
	}
	return len(kinds)
}

// response reads a response and the EVENTs before it: the bytes may subscribe, and publish.
func response[T codec.Value](dec *codec.Decoder[T], kind codec.Kind) error {
	for {
		res, err := dec.Response(kind)
		if err != nil || res.Kind() != codec.KindEvent {
			return err
		}
	}
}

// write writes b in pieces of a size, all at once for 0, until the other side has had
// enough.
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
