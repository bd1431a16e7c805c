package redisbackend_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// flood hits one key from 64 goroutines over two clients. It returns how many hits were allowed.
func flood(t *testing.T, s *server, hits int64, limit uint64) (allowed int64) {
	t.Helper()
	limiters := []*throttr.RateLimit{
		throttr.NewRateLimit(redisbackend.New(s.connect())), throttr.NewRateLimit(redisbackend.New(s.connect())),
	}
	var started, count atomic.Int64
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			for started.Add(1) <= hits {
				res, err := limiters[g%2].Hit(t.Context(), "k", time.Hour, limit)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					count.Add(1)
				}
			}
		})
	}
	all.Wait()
	return count.Load()
}

func TestCountsAreExactWhileScriptsAreFlushed(t *testing.T) {
	s := startServer(t)
	client := s.connect()
	stop := make(chan struct{})
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				redis(t, client, "SCRIPT", "FLUSH")
			}
		}
	})
	const hits = 20_000
	allowed := flood(t, s, hits, 1000)
	close(stop)
	flushing.Wait()
	expect(t, allowed == 1000, "%d hits were allowed, want 1000", allowed)
	b := redisbackend.New(client)
	redis(t, client, "SCRIPT", "FLUSH")
	if w, err := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 0); err != nil || w.Count != hits {
		t.Errorf("%+v, %v", w, err)
	}
	redis(t, client, "SCRIPT", "FLUSH")
	if n, err := b.Delete(t.Context(), "k"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// The statistics of the server show the commands that calls send, and those of their scripts.
func TestCallsAreOneRoundTrip(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	takes := []window.Take{limitOf(window.FixedWindow, time.Hour, 100).For("a", 1), limitOf(window.FixedWindow, time.Minute, 100).For("b", 1)}
	hit := func(a window.Algorithm) func() error {
		return func() error {
			_, err := b.Hit(t.Context(), "k", limitOf(a, time.Hour, 1), 1)
			return err
		}
	}
	for _, test := range []struct {
		call func() error
		want []string
	}{
		{hit(window.FixedWindow), []string{"cmdstat_hget:calls=10,", "cmdstat_hset:calls=10,", "cmdstat_time:calls=10,"}},
		{func() error {
			_, err := b.TakeAll(t.Context(), takes, make([]window.Window, len(takes)))
			return err
		}, []string{"cmdstat_hget:calls=40,", "cmdstat_hset:calls=20,"}},
		{hit(window.TokenBucket), nil}, {hit(window.SlidingWindow), nil}, {hit(window.SlidingLog), nil},
	} {
		noError(t, test.call()) // The server now has the script.
		redis(t, client, "CONFIG", "RESETSTAT")
		for range 10 {
			noError(t, test.call())
		}
		stats, err := redis(t, client, "INFO", "commandstats").ToString()
		noError(t, err)
		for _, want := range append(test.want, "cmdstat_evalsha:calls=10,") {
			expect(t, strings.Contains(stats, want), "no %s in %s", want, stats)
		}
		expect(t, !strings.Contains(stats, "cmdstat_eval:"), "unexpected commands: %s", stats)
		expect(t, test.want == nil || !strings.Contains(stats, "expire"), "unexpected commands: %s", stats)
	}
}
