package mockserver_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
