package redisbackend_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
)

// hammer hits one key from 64 goroutines over two clients, and returns how many hits were
// allowed and how many made.
func hammer(t *testing.T, s *server, hits int64, limit uint64) (allowed, made int64) {
	t.Helper()
	limiters := []*throttr.RateLimit{
		throttr.NewRateLimit(redisbackend.New(s.connect())), throttr.NewRateLimit(redisbackend.New(s.connect())),
	}
	var tickets, passed atomic.Int64
	var all sync.WaitGroup
	for g := range 64 {
		all.Go(func() {
			for tickets.Add(1) <= hits {
				res, err := limiters[g%2].Hit(t.Context(), "k", time.Hour, limit)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return passed.Load(), hits
}

func TestTwoClientsLetThroughExactlyTheLimit(t *testing.T) {
	s := startServer(t)
	allowed, made := hammer(t, s, 100_000, 1000)
	if allowed != 1000 {
		t.Errorf("%d hits are allowed", allowed)
	}
	b := redisbackend.New(s.connect())
	if w, err := b.Get(t.Context(), "k", time.Hour); err != nil || w.Count != uint64(made) {
		t.Errorf("%+v, %v", w, err)
	}
	if n, err := b.Delete(t.Context(), "k"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestCountsStayExactWhenTheServerForgetsItsScripts(t *testing.T) {
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
	allowed, made := hammer(t, s, 20_000, 1000)
	close(stop)
	flushing.Wait()
	if allowed != 1000 {
		t.Errorf("%d hits are allowed", allowed)
	}
	b := redisbackend.New(client)
	redis(t, client, "SCRIPT", "FLUSH")
	if w, err := b.Get(t.Context(), "k", time.Hour); err != nil || w.Count != uint64(made) {
		t.Errorf("%+v, %v", w, err)
	}
	redis(t, client, "SCRIPT", "FLUSH")
	if n, err := b.Delete(t.Context(), "k"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// A hit is one command, whatever it finds: the server says so.
func TestAHitIsOneRoundTrip(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	call := func() {
		if _, err := b.Hit(t.Context(), "k", time.Hour, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	call() // the server gets to know the script
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
		t.Errorf("more than what a hit takes: %s", stats)
	}
}
