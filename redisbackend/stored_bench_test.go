package redisbackend_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// BenchmarkMemory reports what a key with one window takes of a server's memory, in bytes.
func BenchmarkMemory(b *testing.B) {
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow, window.TokenBucket, window.SlidingWindow} {
		b.Run(a.String(), func(b *testing.B) {
			client := startServer(b).connect()
			backend := redisbackend.New(client)
			for b.Loop() {
				if _, err := backend.Hit(b.Context(), "user:12345", limitOf(a, time.Hour, 1<<30), 1); err != nil {
					b.Fatal(err)
				}
			}
			names, err := redis(b, client, "KEYS", "*").AsStrSlice()
			if err != nil || len(names) != 1 {
				b.Fatal(names, err)
			}
			bytes, err := redis(b, client, "MEMORY", "USAGE", names[0]).AsInt64()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(bytes), "bytes/key")
		})
	}
}
