package redisbackend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
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

// The user of docs/redis.md may make all calls, also with the older protocol, another database, a name of the
// connection, behind a Sentinel, and on a cluster: servers deny nothing.
func TestUserOfTheDocumentMayDoAllThatIsNeeded(t *testing.T) {
	server := testkit.StartRedis(t)
	sentinel := testkit.StartSentinel(t, server)
	cluster := testkit.StartCluster(t, 1, 1)
	servers := append(cluster.Nodes(), server)
	for _, s := range servers {
		s.Must(t, userOfTheDocument(t)...)
	}
	denied := regexp.MustCompile(`(?m)^object\n(.*)$`)
	for _, url := range []string{
		server.Addr, server.Addr + "?protocol=2", server.Addr + "/1?client_name=a",
		server.Addr + "?db=1&client_name=a&protocol=2",
		sentinel.Addr + "?master_set=" + testkit.SentinelName,
		sentinel.Addr + "/1?client_name=a&protocol=2&master_set=" + testkit.SentinelName,
		cluster.Addrs()[0] + "?client_name=a&addr=" + cluster.Addrs()[1],
	} {
		everyCallTo(t, "redis://limits:PASSWORD@"+url)
		for _, s := range servers {
			for _, entry := range denied.FindAllStringSubmatch(s.Must(t, "ACL", "LOG"), -1) {
				t.Errorf("%s: denied: %s", url, entry[1])
			}
			s.Must(t, "ACL", "LOG", "RESET")
		}
	}
}

// userOfTheDocument returns the command that makes the user, whose rules the document quotes for a shell.
func userOfTheDocument(t *testing.T) []string {
	t.Helper()
	document, err := os.ReadFile("../docs/redis.md")
	noError(t, err)
	_, rule, _ := strings.Cut(string(document), "redis-cli ACL SETUSER limits on ")
	rule, _, _ = strings.Cut(rule, "```")
	rules := strings.Fields(strings.NewReplacer("'", "", "\\\n", "").Replace(rule))
	return append([]string{"ACL", "SETUSER", "limits", "on"}, rules...)
}

// everyCallTo makes all calls of a store.
func everyCallTo(t *testing.T, url string) {
	t.Helper()
	b, err := throttr.Open(t.Context(), url)
	noError(t, err)
	defer b.Close()
	for _, a := range limits.Algorithms {
		l := window.Limit{Max: 100, Scale: time.Millisecond, Algorithm: a}
		for _, call := range []func(context.Context, string, window.Limit, uint64) (window.Window, error){
			b.Hit, b.Take, b.Peek, b.Charge, b.Set,
		} {
			must(t, call, "k", l, 1)
		}
		windows := make([]window.Window, 2)
		noError(t, errorOf(b.TakeAll(t.Context(), []window.Take{l.For("k", 1), l.For("j", 1)}, windows)))
		noError(t, errorOf(b.GiveBack(t.Context(), "k", l, 1, windows[0].ID)))
		noError(t, b.Reset(t.Context(), "k", l))
	}
	noError(t, errors.Join(errorOf(b.Delete(t.Context(), "k")), b.Ping(t.Context())))
	places := inflight.New(b)
	defer places.Close()
	one := inflight.Limit{Name: "one", Max: 1, Lease: time.Second}
	hold := acquired(t, places, "k", one, 1)
	time.AfterFunc(10*time.Millisecond, hold.Release)
	acquired(t, places, "k", one, 1).Release()
}

// A store is away as long as it does not let the user in, or do what it has to. It is back afterwards. No line of the
// log has a key.
func TestUserWithoutPermissionIsAnOutage(t *testing.T) {
	server := testkit.StartRedis(t)
	user := userOfTheDocument(t)
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
