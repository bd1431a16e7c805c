package redisbackend_test

import (
	"bytes"
	"context"
	"errors"
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
	testkit.AsUserOfTheDocument(t, "../docs/redis.md", func(url string) {
		b, err := throttr.Open(t.Context(), "redis://"+url)
		noError(t, err)
		defer b.Close()
		for _, a := range limits.Algorithms {
			everyCall(t, b, window.Limit{Max: 100, Scale: time.Millisecond, Algorithm: a})
		}
		noError(t, errors.Join(errorOf(b.Delete(t.Context(), "k")), b.Ping(t.Context())))
		places := inflight.New(b)
		defer places.Close()
		one := inflight.Limit{Name: "one", Max: 1, Lease: time.Second}
		hold := acquired(t, places, "k", one, 1)
		time.AfterFunc(10*time.Millisecond, hold.Release)
		acquired(t, places, "k", one, 1).Release()
	})
}

// everyCall makes all calls with a limit.
func everyCall(t *testing.T, b window.Backend, l window.Limit) {
	t.Helper()
	for _, call := range []func(context.Context, string, window.Limit, uint64) (window.Window, error){b.Hit, b.Take, b.Peek, b.Charge, b.Set} {
		must(t, call, "k", l, 1)
	}
	windows := make([]window.Window, 2)
	noError(t, errorOf(b.TakeAll(t.Context(), []window.Take{l.For("k", 1), l.For("j", 1)}, windows)))
	noError(t, errorOf(b.GiveBack(t.Context(), "k", l, 1, windows[0].ID)))
	noError(t, b.Reset(t.Context(), "k", l))
}

// A store is away as long as it does not let the user in, or do what it has to. It is back afterwards. No line of the
// log has a key.
func TestUserWithoutPermissionIsAnOutage(t *testing.T) {
	server := testkit.StartRedis(t)
	user := append([]string{"ACL", "SETUSER", "limits", "on"}, testkit.UserOfTheDocument(t, "../docs/redis.md")...)
	for _, change := range []string{"off", "resetpass", "-evalsha", "-hset"} {
		server.Must(t, user...)
		b, err := throttr.Open(t.Context(), "redis://limits:PASSWORD@"+server.Addr)
		noError(t, err)
		var away atomic.Bool
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil)) // which writes one line at a time
		limiter := throttr.NewRateLimit(b, throttr.WithFallback(memory.New()), throttr.WithLogger(logger), throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventUnavailable || e.Kind == throttr.EventAvailable {
				away.Store(e.Kind == throttr.EventUnavailable)
			}
		}))
		until := func(want bool) {
			await(t, fmt.Sprintf("%s: away is not %v", change, want), func() bool {
				res, err := limiter.Hit(t.Context(), "alice@example.org", time.Hour, 1_000_000)
				noError(t, err)
				return res.Degraded == want && away.Load() == want
			})
		}
		server.Must(t, "ACL", "SETUSER", "limits", change)
		server.Must(t, "CLIENT", "KILL", "USER", "limits")
		until(true)
		server.Must(t, user...)
		until(false)
		b.Close()
		expect(t, strings.Contains(log.String(), "the store is away") && !strings.Contains(log.String(), "alice@example.org"), "%s: the log is %s", change, log.String())
	}
}
