package lease_test

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// servers returns a backend on a mock server: that at THROTTR_ADDR, or one in the process.
func servers(b *testing.B) *throttr.ServerBackend {
	addr := os.Getenv("THROTTR_ADDR")
	if addr == "" {
		srv, err := mockserver.Start(mockserver.WithValueSize(4))
		require.NoError(b, err)
		b.Cleanup(func() { srv.Close() })
		addr = srv.Addr()
	}
	client, err := throttr.Connect[uint32](b.Context(), throttr.Config{Servers: []string{addr}})
	require.NoError(b, err)
	b.Cleanup(func() { client.Close() })
	return client.Backend()
}

// BenchmarkHotKey compares hits on one key in the process: what a place of a block costs.
func BenchmarkHotKey(b *testing.B) {
	const limit = 1 << 62
	store := memory.New()
	leases := lease.New(store)
	b.Cleanup(func() {
		leases.Close()
		store.Close()
	})
	for name, backend := range map[string]throttr.Backend{"memory": store, "lease": leases} {
		limiter := throttr.NewRateLimit(backend)
		b.Run(name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := limiter.Hit(context.Background(), "user:42", time.Minute, limit); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := limiter.Hit(context.Background(), "user:42", time.Minute, limit); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkColdKeys compares hits on many keys on a server, with and without leases, and takes.
func BenchmarkColdKeys(b *testing.B) {
	backend := servers(b)
	leases := lease.New(backend)
	b.Cleanup(func() { leases.Close() })
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = "key:" + strconv.Itoa(i)
		_, err := backend.Hit(b.Context(), keys[i], per(1<<30, time.Hour), 1)
		require.NoError(b, err)
	}
	bench := func(name string, hit func(key string) error) {
		b.Run(name, func(b *testing.B) {
			var next atomic.Int64
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := hit(keys[next.Add(1)%int64(len(keys))]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	ctx := context.Background()
	bench("hits", func(key string) error {
		_, err := backend.Hit(ctx, key, per(1<<30, time.Hour), 1)
		return err
	})
	bench("takes", func(key string) error {
		_, err := backend.Take(ctx, key, per(1<<30, time.Hour), 1)
		return err
	})
	bench("leases", func(key string) error {
		_, err := leases.Hit(ctx, key, per(1<<30, time.Hour), 1)
		return err
	})
}
