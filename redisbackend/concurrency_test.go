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

//evidence:redis Two clients at once get exactly the limit
func TestTwoClientsAllowExactlyTheLimit(t *testing.T) {
	s := startServer(t)
	const hits = 100_000
	if allowed := flood(t, s, hits, 1000); allowed != 1000 {
		t.Errorf("%d hits were allowed, want 1000", allowed)
	}
	b := redisbackend.New(s.connect())
	if w, err := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 0); err != nil || w.Count != hits {
		t.Errorf("%+v, %v", w, err)
	}
	if n, err := b.Delete(t.Context(), "k"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
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
	if allowed != 1000 {
		t.Errorf("%d hits were allowed, want 1000", allowed)
	}
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

// The statistics of the server show the commands that hits send.
//
//evidence:redis A hit is one round trip
func TestHitIsOneRoundTrip(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	call := func() {
		if _, err := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 1), 1); err != nil {
			t.Fatal(err)
		}
	}
	call() // The server now has the script.
	redis(t, client, "CONFIG", "RESETSTAT")
	for range 10 {
		call()
	}
	stats, err := redis(t, client, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cmdstat_evalsha:calls=10,", "cmdstat_hget:calls=10,", "cmdstat_hset:calls=10,", "cmdstat_time:calls=10,"} {
		if !strings.Contains(stats, want) {
			t.Errorf("no %s in %s", want, stats)
		}
	}
	if strings.Contains(stats, "cmdstat_eval:") || strings.Contains(stats, "expire") {
		t.Errorf("unexpected commands: %s", stats)
	}
}
