package main

import (
	"context"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	_ "github.com/throttr-go/throttr/redisbackend"
)

// BenchmarkRedis asks what a decision costs that processes share.
func BenchmarkRedis(b *testing.B) { onKeys(b, 1000) }

// BenchmarkRedisOneKey asks the same of a key that all share.
func BenchmarkRedisOneKey(b *testing.B) { onKeys(b, 1) }

func onKeys(b *testing.B, keys int) {
	startRedis(b)
	bucket, longer := limit, limit
	bucket.Algorithm = throttr.TokenBucket
	longer.Scale += time.Hour
	compare(b, []load{{keys, 1, true}, {keys, 2, true}, {keys, 4, true}, {keys, 8, true}, {keys, 64, true}, {keys, 512, true}},
		contender{"throttr take", onRedis("redis", limit)},
		contender{"throttr bucket", onRedis("redis", bucket)},
		contender{"throttr all of two", onRedis("redis", limit, longer)},
		contender{"throttr take, go-redis", onRedis("goredis", limit)},
		contender{"script INCR", script(incr)},
		contender{"script GCRA", script(gcra)},
		contender{"redis_rate", func(b *testing.B) (call, func()) { return redisRate(b, redisAddress(b)) }},
	)
}

// onRedis takes from one limit, or from all of several.
func onRedis(scheme string, limits ...throttr.Limit) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		r, end := limiter(b, scheme+"://"+redisAddress(b))
		if len(limits) == 1 {
			return func(ctx context.Context, key string) error {
				res, err := r.Take(ctx, key, limits[0], 1)
				return allowed(res.Allowed, err)
			}, end
		}
		return func(ctx context.Context, key string) error {
			ok, _, err := r.TakeAll(ctx, limits[0].For(key, 1), limits[1].For(key, 1))
			return allowed(ok, err)
		}, end
	}
}

// The scripts are what a program has without this module: a fixed window and a bucket.
const (
	incr = `local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return n <= tonumber(ARGV[1]) and 1 or 0`

	gcra = `local t = redis.call('TIME')
local now, full = t[1] * 1000 + t[2] / 1000, math.max(tonumber(redis.call('GET', KEYS[1]) or 0), 0)
local per = ARGV[2] / ARGV[1]
full = math.max(full, now) + per
if full - now > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.6f', full), 'PX', math.ceil(full - now))
return 1`
)

func script(text string) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		client := connect(b, redisAddress(b))
		s := rueidis.NewLuaScript(text)
		arguments := []string{strconv.Itoa(most), strconv.FormatInt(scale.Milliseconds(), 10)}
		return func(ctx context.Context, key string) error {
			n, err := s.Exec(ctx, client, []string{key}, arguments).AsInt64()
			return allowed(n == 1, err)
		}, client.Close
	}
}

func redisRate(_ *testing.B, addr string) (call, func()) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	l := redis_rate.NewLimiter(client)
	return func(ctx context.Context, key string) error {
		res, err := l.Allow(ctx, key, redis_rate.Limit{Rate: most, Burst: most, Period: scale})
		return allowed(err == nil && res.Allowed == 1, err)
	}, func() { client.Close() }
}

// BenchmarkInFlight asks what a pair of acquire and release costs on Redis. The sorted set is what a program has
// without this module: its places end by time only.
func BenchmarkInFlight(b *testing.B) {
	startRedis(b)
	compare(b, []load{{1, 1, true}, {1, 64, true}, {1000, 1, true}, {1000, 64, true}},
		contender{"inflight", places},
		contender{"sorted set", sortedSet},
	)
}

const placesOfKey = 1000

func places(b *testing.B) (call, func()) {
	store := must(throttr.Open(b.Context(), "redis://"+redisAddress(b)))(b)
	l := inflight.New(store)
	limit := inflight.Limit{Name: "bench", Max: placesOfKey, Lease: 2 * time.Second}
	return func(ctx context.Context, key string) error {
		h, err := l.Acquire(ctx, key, limit, 1)
		if err == nil {
			h.Release()
		}
		return err
	}, func() { l.Close(); store.Close() }
}

func sortedSet(b *testing.B) (call, func()) {
	client := connect(b, redisAddress(b))
	acquire := rueidis.NewLuaScript(`local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
	var ids atomic.Int64
	return func(ctx context.Context, key string) error {
		id := strconv.FormatInt(ids.Add(1), 36)
		n, err := acquire.Exec(ctx, client, []string{key}, []string{strconv.Itoa(placesOfKey), "30000", id}).AsInt64()
		if err == nil {
			err = client.Do(ctx, client.B().Zrem().Key(key).Member(id).Build()).Error()
		}
		return allowed(n == 1, err)
	}, client.Close
}

// BenchmarkLease asks what leases save if eight clients share one key on Redis: a limit that is not reached, and one
// of 50,000 a second, of which denials count as calls, too.
func BenchmarkLease(b *testing.B) {
	startRedis(b)
	full := throttr.Limit{Max: 50_000, Scale: time.Second}
	compare(b, []load{{1, 32, false}},
		contender{"leases", leases(limit, true)},
		contender{"none", leases(limit, false)},
		contender{"leases, limit reached", leases(full, true)},
		contender{"none, limit reached", leases(full, false)},
	)
}

func leases(l throttr.Limit, leased bool) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		url := "redis://" + redisAddress(b)
		var clients [8]*throttr.RateLimit
		var opened []io.Closer
		for i := range clients {
			store := must(throttr.Open(b.Context(), url))(b)
			backend := io.Closer(store)
			if leased {
				backend = lease.New(store)
			}
			opened = append(opened, backend, store)
			clients[i] = throttr.NewRateLimit(backend.(throttr.Backend), throttr.WithTimeout(10*time.Second))
		}
		var next atomic.Uint32
		return func(ctx context.Context, key string) error {
				_, err := clients[next.Add(1)%8].Take(ctx, key, l, 1)
				return err
			}, func() {
				for _, c := range opened {
					c.Close()
				}
			}
	}
}

// The load of a program whose Redis is away: calls come whether those before have ended or not.
const (
	every  = 500 * time.Microsecond
	before = time.Second
	away   = 5 * time.Second
	after  = 3 * time.Second
)

// limited are programs: with defaults, and a fallback if they can have one. A call fails unless Redis has decided.
var limited = []struct {
	name string
	open func(b *testing.B, addr string) (call, func())
}{
	{"throttr", withFallback("redis")},
	{"throttr, go-redis", withFallback("goredis")},
	{"redis_rate", redisRate},
}

func withFallback(scheme string) func(b *testing.B, addr string) (call, func()) {
	return func(b *testing.B, addr string) (call, func()) {
		r, end := limiter(b, scheme+"://"+addr, throttr.WithFallback(memory.New()), throttr.WithLogger(nil), throttr.WithTimeout(250*time.Millisecond))
		return func(ctx context.Context, key string) error {
			res, err := r.Take(ctx, key, limit, 1)
			return allowed(!res.Degraded, err)
		}, end
	}
}

// BenchmarkOutage asks what calls take while Redis hangs or is down, and when Redis decides again.
func BenchmarkOutage(b *testing.B) {
	for _, name := range []string{"hangs", "down"} {
		for _, l := range limited {
			b.Run(name+"/"+l.name, func(b *testing.B) {
				s := testkit.StartRedis(b)
				decide, end := l.open(b, s.Addr)
				defer end()
				if name == "hangs" {
					measureOutage(b, decide, func() { s.Freeze(b) }, func() { s.Thaw(b) })
				} else {
					measureOutage(b, decide, s.Kill, func() { s.Restart(b) })
				}
			})
		}
	}
}

func measureOutage(b *testing.B, decide call, begin, end func()) {
	var mu sync.Mutex
	var took []time.Duration
	var calls sync.WaitGroup
	begun := time.Now().Add(before)
	ended, last := begun.Add(away), begun // last is that of a decision without Redis
	next := begun.Add(-before)
	send := func(until time.Time) {
		for ; next.Before(until); next = next.Add(every) {
			time.Sleep(time.Until(next))
			calls.Go(func() {
				at := time.Now()
				err := decide(context.Background(), "user")
				mu.Lock()
				defer mu.Unlock()
				if at.After(begun) && at.Before(ended) {
					took = append(took, time.Since(at))
				}
				if err != nil && at.After(last) {
					last = at
				}
			})
		}
	}
	send(begun)
	begin()
	send(ended)
	end()
	send(ended.Add(after))
	calls.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	b.ReportMetric(float64(took[len(took)-1]), "slowest-ns")
	b.ReportMetric(max(0, last.Sub(ended).Seconds()), "s-until-back")
}
