package redisbackend_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// BenchmarkStored compares forms of a stored window: what it takes a server to read one, add to its
// count, and store it. A script does that b.N times.
func BenchmarkStored(b *testing.B) {
	const begin = `
		local call, pack, unpack = redis.call, struct.pack, struct.unpack
		call('HSET', KEYS[1], 'f', ARGV[2])
		for i = 1, ARGV[1] do
			local value = call('HGET', KEYS[1], 'f')`
	const end = `
			call('HSET', KEYS[1], 'f', value)
		end`
	const text = "5 1763000000000000 1763000000000001 1234567890123"
	for _, form := range []struct{ name, value, script string }{
		{"unchanged", text, ""},
		{"packed", stored(5, 1763000000000000, 1234567890123), `
			local count, start, id = unpack('<ddd', value)
			value = pack('<ddd', count + 1, start, id)`},
		{"text", text, `
			local count, start, updated, id = string.match(value, '^(%d+) (%-?%d+) (%-?%d+) ?(%d*)$')
			value = string.format('%d %s %s %s', count + 1, start, updated, id)`},
	} {
		b.Run(form.name, func(b *testing.B) {
			client := startServer(b).connect()
			b.ResetTimer()
			redis(b, client, "EVAL", begin+form.script+end, "1", "k", strconv.Itoa(b.N), form.value)
		})
	}
}

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
