package throttr_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// BenchmarkWhatDoesARequestCost compares requests of so many callers on one connection with
// the same frames, as many at a time, that are written and whose answers are read by hand.
// They take turns. The server is in this process: cmd/throttr's bench has one elsewhere.
func BenchmarkWhatDoesARequestCost(b *testing.B) {
	const each = 100 // requests of each caller in a turn
	srv := mockserver.RunT(b, mockserver.WithValueSize(8))
	client := connect[uint64](b, srv, throttr.Config{MaxConns: 1})
	ok, err := client.Insert(b.Context(), "counter", 0, codec.TTL[uint64]{Amount: 1, Unit: codec.Hours})
	require.NoError(b, err)
	require.True(b, ok)
	frame, err := codec.Update[uint64]{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: []byte("counter")}.AppendBinary(nil)
	require.NoError(b, err)
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("%d at a time", callers), func(b *testing.B) {
			conn, err := net.Dial("tcp", srv.Addr())
			require.NoError(b, err)
			defer conn.Close()
			requests, answers := bytes.Repeat(frame, callers), make([]byte, callers)
			byHand := func() {
				for range each {
					if _, err := conn.Write(requests); err != nil {
						b.Error(err)
					}
					if _, err := io.ReadFull(conn, answers); err != nil || answers[callers-1] != 1 {
						b.Error(err, answers)
					}
				}
			}
			byClient := func() {
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for range each {
							if ok, err := client.Update(b.Context(), "counter", codec.Quota, codec.Increase, 1); err != nil || !ok {
								b.Error(ok, err)
							}
						}
					})
				}
				all.Wait()
			}
			var first, second time.Duration
			for b.Loop() {
				start := time.Now()
				byClient()
				middle := time.Now()
				byHand()
				first += middle.Sub(start)
				second += time.Since(middle)
			}
			requestsMade := float64(b.N * callers * each)
			b.ReportMetric(0, "ns/op") // of a turn of both
			b.ReportMetric(float64(first)/requestsMade, "client-ns")
			b.ReportMetric(float64(second)/requestsMade, "hand-ns")
			b.ReportMetric(float64(second)/float64(first), "throughput-ratio")
		})
	}
}
