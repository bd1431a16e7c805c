package redisbackend_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// BenchmarkHit compares hits on a thousand windows on Redis, in memory, and on a Throttr mock
// server. The servers run on the same machine.
func BenchmarkHit(b *testing.B) {
	for _, backend := range []struct {
		name  string
		start func(b *testing.B) throttr.Backend
	}{
		{"redis", func(b *testing.B) throttr.Backend { return redisbackend.New(startServer(b).connect()) }},
		{"memory", func(b *testing.B) throttr.Backend {
			m := memory.New()
			b.Cleanup(func() { m.Close() })
			return m
		}},
		{"mockserver", func(b *testing.B) throttr.Backend {
			mock := mockserver.RunT(b, mockserver.WithValueSize(4))
			client, err := throttr.Connect[uint32](b.Context(), throttr.Config{Servers: []string{mock.Addr()}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { client.Close() })
			return client.Backend()
		}},
	} {
		b.Run(backend.name, func(b *testing.B) {
			s := backend.start(b)
			var keys [1000]string
			for i := range keys {
				keys[i] = fmt.Sprint("user:", i)
			}
			hit := func(ctx context.Context, n uint64) {
				if _, err := s.Hit(ctx, keys[n%1000], limitOf(window.FixedWindow, time.Minute, 1_000_000), 1); err != nil {
					b.Error(err)
				}
			}
			for _, c := range []struct {
				name string
				ctx  context.Context
			}{{"ctx never ends", context.Background()}, {"ctx can end", b.Context()}} {
				ctx := c.ctx
				b.Run("serial/"+c.name, func(b *testing.B) {
					b.ReportAllocs()
					for i := uint64(0); b.Loop(); i++ {
						hit(ctx, i)
					}
				})
				b.Run("parallel/"+c.name, func(b *testing.B) {
					b.ReportAllocs()
					b.SetParallelism(32)
					var n atomic.Uint64
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							hit(ctx, n.Add(1))
						}
					})
				})
			}
		})
	}
}
