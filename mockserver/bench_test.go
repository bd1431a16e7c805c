package mockserver_test

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

// How long does a request take, one at a time and in batches?
func BenchmarkIncrease(b *testing.B) {
	b.Run("tcp/one", func(b *testing.B) { benchmarkIncrease(b, false, 1) })
	b.Run("tcp/batch of 256", func(b *testing.B) { benchmarkIncrease(b, false, 256) })
	b.Run("memory/one", func(b *testing.B) { benchmarkIncrease(b, true, 1) })
	b.Run("memory/batch of 256", func(b *testing.B) { benchmarkIncrease(b, true, 256) })
}

func benchmarkIncrease(b *testing.B, memory bool, batch int) {
	srv := mockserver.RunT(b)
	srv.Set("user:42", 0, time.Hour)
	var conn net.Conn
	var err error
	if memory {
		conn, err = srv.Dial(b.Context())
		require.NoError(b, err)
		defer conn.Close()
	} else {
		conn = dialReal(b, srv)
	}
	p := []byte(strings.Repeat(string(frames(b, increase("user:42", 1))), batch))
	responses := make([]byte, batch)
	b.ReportAllocs()
	for i := 0; i < b.N; i += batch {
		if _, err := conn.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, responses); err != nil {
			b.Fatal(err)
		}
	}
}

// How long does a LIST of 100,000 keys take, until its last byte has come?
func BenchmarkList(b *testing.B) {
	srv := mockserver.RunT(b)
	for i := range 100_000 {
		srv.Set("user:"+strconv.Itoa(i), 0, time.Hour)
	}
	conn := dialReal(b, srv)
	buf := make([]byte, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(frames(b, codec.List{})); err != nil {
			b.Fatal(err)
		}
		var d codec.ListDecoder[uint16.Value]
		for !d.Done() {
			n, err := conn.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			for piece := buf[:n]; len(piece) > 0; {
				_, n, err := d.Decode(piece)
				if err != nil && !errors.Is(err, codec.ErrShort) {
					b.Fatal(err)
				}
				piece = piece[n:]
			}
		}
	}
}

// How long does a PUBLISH take that has one subscriber, the publisher?
func BenchmarkPublish(b *testing.B) {
	srv := mockserver.RunT(b)
	conn := dialReal(b, srv)
	require.Equal(b, "01", askReal(b, conn, 1, subscribe("news")))
	p := frames(b, publish("news", "hello"))
	responses := make([]byte, len(p)+1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, responses); err != nil {
			b.Fatal(err)
		}
	}
}
