package redisbackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/redisbackend"
)

// sortedSet is the usual semaphore on Redis: a sorted set of holders, by when their lease ends.
var (
	sortedSetAcquire = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
	sortedSetHolders atomic.Uint64
)

// cpuOf returns how long a server has used a processor.
func cpuOf(t testing.TB, client rueidis.Client) (d time.Duration) {
	info, err := redis(t, client, "INFO", "cpu").ToString()
	noError(t, err)
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_cpu_user:"); ok {
			seconds, _ := strconv.ParseFloat(value, 64)
			d += time.Duration(seconds * 1e9)
		} else if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_cpu_sys:"); ok {
			seconds, _ := strconv.ParseFloat(value, 64)
			d += time.Duration(seconds * 1e9)
		}
	}
	return d
}

// pairs makes pairs of acquire and release by 64 goroutines for some time. It returns pairs per second, and the CPU
// time of the server per pair.
func pairs(t testing.TB, client rueidis.Client, keys int, d time.Duration, pair func(key string)) (perSecond, cpu float64) {
	var n atomic.Int64
	var all sync.WaitGroup
	before, start := cpuOf(t, client), time.Now()
	for range 64 {
		all.Go(func() {
			for time.Since(start) < d {
				pair(fmt.Sprint("k", rand.IntN(keys)))
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(start).Seconds(), float64(cpuOf(t, client)-before) / float64(n.Load())
}

// BenchmarkInFlight compares with a sorted set on the same client.
func BenchmarkInFlight(b *testing.B) {
	s := startOnSocket(b)
	client := s.connect()
	ctx := context.Background()
	limit := inflight.Limit{Max: 1000, Lease: 10 * time.Second}
	l := inflight.New(redisbackend.New(client))
	defer l.Close()
	ready(b, l, limit)
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			var ledger, set, ledgerCPU, setCPU float64
			const slice = 500 * time.Millisecond
			for b.Loop() { // alternating: the machine is not always as fast
				n, cpu := pairs(b, client, keys, slice, func(key string) {
					h, err := l.Acquire(ctx, key, limit, 1)
					noError(b, err)
					h.Release()
				})
				ledger, ledgerCPU = ledger+n, ledgerCPU+cpu
				n, cpu = pairs(b, client, keys, slice, func(key string) {
					holder := strconv.FormatUint(sortedSetHolders.Add(1), 10)
					got, err := sortedSetAcquire.Exec(ctx, client, []string{"set:" + key}, []string{"1000", "10000", holder}).AsInt64()
					noError(b, err)
					expect(b, got == 1, "no place")
					noError(b, client.Do(ctx, client.B().Zrem().Key("set:"+key).Member(holder).Build()).Error())
				})
				set, setCPU = set+n, setCPU+cpu
			}
			b.ReportMetric(ledger/float64(b.N), "pairs/s")
			b.ReportMetric(ledger/set, "pairs/set")
			b.ReportMetric(ledgerCPU/float64(b.N)/1e3, "µs/pair")
			b.ReportMetric(ledgerCPU/setCPU, "cpu/set")
		})
	}
}

// BenchmarkHandOver is from a release to the next holder in another process.
func BenchmarkHandOver(b *testing.B) {
	s := startOnSocket(b)
	limit := inflight.Limit{Max: 1, Lease: 4 * time.Second}
	one, two := newInFlight(b, redisbackend.New(s.connect())), newInFlight(b, redisbackend.New(s.connect()))
	ready(b, one, limit)
	handOver(b, one, two, limit, 10)
	var all []time.Duration
	for b.Loop() {
		all = append(all, handOver(b, one, two, limit, 1)...)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100])/1e6, "p99-ms")
}
