package redisbackend_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// TestUserOfTheDocumentMayDoAllThatIsNeeded makes the user of docs/redis.md and makes all calls as that user, also
// with the older protocol, another database, a name of the connection, and behind Sentinel.
func TestUserOfTheDocumentMayDoAllThatIsNeeded(t *testing.T) {
	testkit.AsUserOfTheDocument(t, func(url string) {
		b, err := throttr.Open(t.Context(), "redis://"+url)
		if err != nil {
			t.Fatal(url, err)
		}
		limiter := throttr.NewRateLimit(b, throttr.WithTimeout(time.Minute))
		for a := window.FixedWindow; a <= limits.LastAlgorithm; a++ {
			for i := range 20 { // so many that a hash drops some
				l := throttr.Limit{Name: fmt.Sprint(i), Max: 100, Scale: time.Millisecond, Algorithm: a}
				if err := everyCall(t, limiter, l); err != nil {
					t.Fatal(url, a, err)
				}
			}
		}
		if _, err := limiter.Delete(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		places := inflight.New(b)
		one := inflight.Limit{Name: "one", Max: 1, Lease: time.Second}
		hold, err := places.Acquire(t.Context(), "k", one, 1)
		if err != nil {
			t.Fatal(url, err)
		}
		time.AfterFunc(10*time.Millisecond, hold.Release)
		next, err := places.Acquire(t.Context(), "k", one, 1)
		if err != nil {
			t.Error(url, err)
		}
		next.Release()
		places.Close()
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		b.Close()
	})
}

// everyCall makes all calls with a limit, and returns the first error.
func everyCall(t *testing.T, limiter *throttr.RateLimit, l throttr.Limit) error {
	for _, call := range []func() error{
		func() error { _, err := limiter.HitN(t.Context(), "k", l, 1); return err },
		func() error { _, err := limiter.Take(t.Context(), "k", l, 1); return err },
		func() error { _, err := limiter.Peek(t.Context(), "k", l, 1); return err },
		func() error { _, err := limiter.Charge(t.Context(), "k", l, 1); return err },
		func() error { _, _, err := limiter.TakeAll(t.Context(), l.For("k", 1), l.For("j", 1)); return err },
		func() error {
			rv, _, err := limiter.Reserve(t.Context(), l.For("k", 2))
			if err != nil {
				return err
			}
			return rv.Commit(t.Context(), 1)
		},
		func() error { return limiter.Forget(t.Context(), "k", l) },
	} {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// A store is away as long as it does not let the user in, or do what it has to. It is back afterwards. No line of the
// log has a key.
func TestUserWithoutPermissionIsAnOutage(t *testing.T) {
	server := testkit.StartRedis(t)
	user := append([]string{"ACL", "SETUSER", "limits"}, testkit.UserOfTheDocument(t)...)
	for _, change := range []string{"off", "resetpass", "-evalsha", "-hset"} {
		server.Must(t, append(user, "on")...)
		b, err := throttr.Open(t.Context(), "redis://limits:PASSWORD@"+server.Addr)
		if err != nil {
			t.Fatal(change, err)
		}
		var away atomic.Bool
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil)) // which writes one line at a time
		limiter := throttr.NewRateLimit(b, throttr.WithFallback(memory.New()), throttr.WithLogger(logger), throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventUnavailable || e.Kind == throttr.EventAvailable {
				away.Store(e.Kind == throttr.EventUnavailable)
			}
		}))
		until := func(want bool) {
			for start := time.Now(); ; time.Sleep(time.Millisecond) {
				res, err := limiter.Hit(t.Context(), "alice@example.org", time.Hour, 1_000_000)
				if err != nil {
					t.Fatal(change, err)
				}
				if res.Degraded == want && away.Load() == want {
					return
				}
				if time.Since(start) > patience {
					t.Fatalf("%s: away is not %v", change, want)
				}
			}
		}
		server.Must(t, "ACL", "SETUSER", "limits", change)
		server.Must(t, "CLIENT", "KILL", "USER", "limits")
		until(true)
		server.Must(t, append(user, "on")...)
		until(false)
		b.Close()
		expect(t, strings.Contains(log.String(), "the store is away") && !strings.Contains(log.String(), "alice@example.org"), "%s: the log is %s", change, log.String())
	}
}
