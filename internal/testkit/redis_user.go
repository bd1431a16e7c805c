package testkit

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// AsUserOfTheDocument makes the user of docs/redis.md on a server, behind a Sentinel and on a cluster, and calls use
// with URLs without scheme: also with the older protocol, another database and a name of the connection. It requires
// that servers have denied nothing.
func AsUserOfTheDocument(t *testing.T, use func(url string)) {
	t.Helper()
	server := StartRedis(t)
	sentinel := StartSentinel(t, server)
	cluster := StartCluster(t, 1)
	servers := append(cluster.nodes(), server)
	rule := append([]string{"ACL", "SETUSER", "limits", "on"}, userOfTheDocument(t)...)
	for _, s := range servers {
		s.Must(t, rule...)
	}
	for _, url := range []string{
		server.Addr, server.Addr + "?protocol=2", server.Addr + "/1?client_name=a", server.Addr + "?db=1&client_name=a&protocol=2",
		sentinel.Addr + "?master_set=" + SentinelName, sentinel.Addr + "/1?client_name=a&protocol=2&master_set=" + SentinelName,
		cluster.Addrs()[0] + "?client_name=a&addr=" + cluster.Addrs()[1],
	} {
		use("limits:PASSWORD@" + url)
		for _, s := range servers {
			for _, entry := range deniedObject.FindAllStringSubmatch(s.Must(t, "ACL", "LOG"), -1) {
				t.Errorf("%s: denied: %s", url, entry[1])
			}
			s.Must(t, "ACL", "LOG", "RESET")
		}
	}
}

// WithoutPermission requires that a store is away as long as it does not let the user in, or do what it has to, that
// programs are told so, and that it is back afterwards.
func WithoutPermission(t *testing.T, scheme string, open func(url string) (window.BackendCloser, error)) {
	t.Helper()
	server := StartRedis(t)
	user := append([]string{"ACL", "SETUSER", "limits"}, userOfTheDocument(t)...)
	for _, change := range []string{"off", "resetpass", "resetkeys", "-evalsha", "-hset"} {
		server.Must(t, append(user, "on")...)
		b, err := open(scheme + "://limits:PASSWORD@" + server.Addr)
		if err != nil {
			t.Fatal(change, err)
		}
		var away atomic.Bool
		limiter := throttr.NewRateLimit(b, throttr.WithFallback(memory.New()), throttr.WithLogger(nil), throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventUnavailable || e.Kind == throttr.EventAvailable {
				away.Store(e.Kind == throttr.EventUnavailable)
			}
		}))
		until := func(want bool) {
			for start := time.Now(); ; time.Sleep(time.Millisecond) {
				res, err := limiter.Hit(t.Context(), "k", time.Hour, 1_000_000)
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
	}
}

var deniedObject = regexp.MustCompile(`(?m)^object\n(.*)$`)

// userOfTheDocument returns what the user may do: the arguments after the name, which are quoted for a shell.
func userOfTheDocument(t *testing.T) []string {
	t.Helper()
	document, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		document, err = os.ReadFile("../../docs/redis.md")
	}
	noError(t, err)
	_, rule, ok := strings.Cut(string(document), "redis-cli ACL SETUSER limits on ")
	if !ok {
		t.Fatal("docs/redis.md has no rule")
	}
	rule, _, _ = strings.Cut(rule, "```")
	return strings.Fields(strings.NewReplacer("'", "", "\\\n", "").Replace(rule))
}
