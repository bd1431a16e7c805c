package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

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
