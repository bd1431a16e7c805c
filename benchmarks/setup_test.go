package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend/goredis"
)

// The limit of each key is never reached.
const (
	most  = 1 << 30
	scale = time.Hour
)

var limit = throttr.Limit{Max: most, Scale: scale}

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // this process holds less memory than a service
	m.Run()
}

// call is what is measured: a call for a key.
type call = func(ctx context.Context, key string) error

// contender is one answer to a question. Open makes what is called, and what ends that.
type contender struct {
	name string
	open func(b *testing.B) (call, func())
}

// load is how a contender is called.
type load struct {
	keys, callers int
	timed         bool // take the time of each call, which takes longer than a call in memory
}

// newKeys returns n keys, whose bytes are beside each other: no caller has those that a store keeps in its cache.
func newKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key:%012d", i)
	}
	return keys
}

// compare measures contenders with each load. Each row has a contender of its own.
func compare(b *testing.B, loads []load, contenders ...contender) {
	for _, l := range loads {
		keys := newKeys(l.keys)
		fresh := newKeys(l.keys)
		for _, c := range contenders {
			var f call
			end := func() {}
			b.Run(fmt.Sprintf("keys=%d/callers=%d/%s", l.keys, l.callers, c.name), func(b *testing.B) {
				if f == nil {
					f, end = c.open(b)
					for _, key := range keys {
						if err := f(b.Context(), key); err != nil {
							b.Fatal(err)
						}
					}
				}
				l.run(b, f, fresh)
			})
			end()
		}
	}
}

// run makes b.N calls, in an order that is spread over the keys.
func (l load) run(b *testing.B, f call, keys []string) {
	b.ReportAllocs()
	times := make([][]time.Duration, l.callers)
	var callers sync.WaitGroup
	runtime.GC()
	own, servers := ownCPU(), serverCPU(b)
	b.ResetTimer()
	for i := range l.callers {
		callers.Go(func() {
			ctx := context.Background()
			for n := i; n < b.N; n += l.callers {
				key := keys[uint32(uint64(n)*0x9e3779b97f4a7c15>>32)%uint32(len(keys))]
				var begun time.Time
				if l.timed {
					begun = time.Now()
				}
				if err := f(ctx, key); err != nil {
					b.Error(err)
					return
				}
				if l.timed {
					times[i] = append(times[i], time.Since(begun))
				}
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	perCall := func(d time.Duration) float64 { return float64(d) / float64(b.N) }
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(perCall(ownCPU()-own), "cpu-ns")
	if used := serverCPU(b) - servers; used > 0 {
		b.ReportMetric(perCall(used), "server-cpu-ns")
	}
	if all := slices.Concat(times...); len(all) > 0 {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2]), "p50-ns")
		b.ReportMetric(float64(all[len(all)*99/100]), "p99-ns")
	}
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverCPU returns the processor time of the Redis or the PostgreSQL.
func serverCPU(b *testing.B) (sum time.Duration) {
	if postgres != nil {
		return postgresCPU()
	}
	if server == nil {
		return 0
	}
	for _, m := range usedCPU.FindAllStringSubmatch(server.Must(b, "INFO", "cpu"), -1) {
		seconds, _ := time.ParseDuration(m[1] + "s")
		sum += seconds
	}
	return sum
}

var usedCPU = regexp.MustCompile(`used_cpu_(?:sys|user):(\S+)`)

// server is the Redis of the benchmark that runs, if it has one.
var server *testkit.Redis

// startRedis starts a Redis that stores nothing on disk, until the benchmark ends.
func startRedis(b *testing.B) {
	server = testkit.StartRedis(b)
	b.Cleanup(func() { server = nil })
}

// redisAddress returns the address of the server, which has no keys.
func redisAddress(b *testing.B) string {
	server.Must(b, "FLUSHALL")
	return server.Addr
}

// connect returns a client without the client-side cache, which does not help counters.
func connect(b *testing.B, addr string) rueidis.Client {
	return must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true}))(b)
}

// limiter opens a store, or makes a client of go-redis for goredis://, and returns a limiter that waits for it up to a
// second: what is measured is how long that takes.
func limiter(b *testing.B, url string, opts ...throttr.Option) (*throttr.RateLimit, func()) {
	opts = append([]throttr.Option{throttr.WithTimeout(time.Second)}, opts...)
	if addr, ok := strings.CutPrefix(url, "goredis://"); ok {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		return throttr.NewRateLimit(goredis.New(client), opts...), func() { client.Close() }
	}
	store := must(throttr.Open(b.Context(), url))(b)
	return throttr.NewRateLimit(store, opts...), func() { store.Close() }
}

// must ends the benchmark if there is an error.
func must[T any](v T, err error) func(b *testing.B) T {
	return func(b *testing.B) T {
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
}

// allowed is the end of a call.
func allowed(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("denied, although the limit is not reached")
	}
	return err
}
