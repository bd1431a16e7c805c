//go:build unix

package redisbackend_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestErrorsOfOpenSayWhatIsWrong(t *testing.T) {
	for query, want := range map[string]string{
		"prefx=a": `"prefx" is unknown; there are prefix, timeout,`, "lazy=maybe": "lazy is malformed", "lazy=true&lazy=true": "lazy", "max_log=x": "max_log", "max_log=-1": "max_log",
		"max_queued=-1": "max_queued", "timeout=1": "timeout is malformed: write 250ms", "timeout=-1s": "timeout", "a=%zz": "malformed", "db=nodb": "malformed", "dial_timeout=x": "malformed",
	} {
		for _, scheme := range []string{"redis", "rediss", "redis+unix"} {
			_, err := throttr.Open(t.Context(), scheme+"://127.0.0.1:1?"+query)
			expect(t, errors.Is(err, throttr.ErrConfig) && strings.HasPrefix(err.Error(), "redisbackend: ") && strings.Contains(err.Error(), want), "%s, %s: %v", scheme, query, err)
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = throttr.Open(ctx, "redis://"+silent.Addr().String())
	expect(t, errors.Is(err, context.Canceled), "a ctx that has ended: %v", err)
}

// What is before the host of a URL may be a password, whatever is wrong with the URL. Without an @, a password that
// begins with digits and a slash seems to be a port and a database.
func TestErrorsOfOpenHaveNoPartOfUserAndPassword(t *testing.T) {
	urls := []string{"redis://zoo:12/tpw", "redis://:12/tpw", "rediss://zoo:12/tpw/s3cr", "redis://zoo:12?db=tpw", "redis://zoo:12/1?protocol=tpw"}
	for _, userinfo := range []string{
		"zoe:s3cr%tpw", "zoe:s3cr/tpw", "zoe:s3cr#tpw", "zoe:s3cr?tpw", "zoe:s3cr tpw", "zoe:s3cr[tpw", "zoe:s3cr\ntpw", "zoe:s3cr%zztpw",
		"zoe:12/tpw", "zoe:12#tpw", "zoe:12?tpw", "zoe:12?db=tpw", "zoe:s3cr@tpw", "zoe:s3cr@tpw/s3cr", "zoe:s3cr@tpw?s3cr", ":s3cr#tpw", "zoe", "zoe:s3crtpw",
	} {
		for _, format := range []string{
			"redis://%s@127.0.0.1:1", "redis://%s@127.0.0.1:port", "redis://%s@127.0.0.1:1/nodb", "redis://%s@127.0.0.1:1?db=x&dial_timeout=y",
			"redis://%s@[::1", "rediss://%s@127.0.0.1:1?skip_verify=x", "unix://%s@/nowhere", "http://%s@127.0.0.1", "redis:%s@127.0.0.1:1",
			"redis:/%s@127.0.0.1:1", "%s@127.0.0.1:1", "redis://127.0.0.1:1?addr=%s@127.0.0.1:1", "redis://127.0.0.1:1?addr=redis://%s@127.0.0.1:port",
		} {
			urls = append(urls, fmt.Sprintf(format, userinfo))
		}
	}
	for _, url := range urls {
		_, err := throttr.Open(t.Context(), url)
		expect(t, err != nil, "%q: no error", url)
		text := fmt.Sprintf("%v %+v %#v", err, err, err)
		expect(t, !strings.Contains(text, "zoe") && !strings.Contains(text, "s3cr") && !strings.Contains(text, "tpw"), "%q: %s", url, text)
	}
}

// Some servers repeat the arguments of a command that they do not know, AUTH among them. No reply is about a key.
func TestErrorsOfOpenHaveNoPasswordThatTheServerRepeats(t *testing.T) {
	for _, reply := range []string{
		"ERR unknown command 'AUTH', with args beginning with: 'zoe' 's3cr' ", "ERR zoe has no password s3cr",
		"NOPERM User the key user has no permissions to run the 'select' command",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		noError(t, err)
		testkit.Serve(t, l, func(conn net.Conn) {
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "*") {
					fmt.Fprintf(conn, "-%s\r\n", reply)
				}
			}
		})
		_, err = throttr.Open(t.Context(), "redis://zoe:s3cr@"+l.Addr().String())
		expect(t, errors.Is(err, window.ErrUnavailable) && strings.HasPrefix(err.Error(), "redisbackend: connect: "), "%v", err)
		expect(t, !strings.Contains(err.Error(), "s3cr") && !strings.Contains(err.Error(), "zoe"), "%v", err)
	}
}

// A backend that is opened lazily fails until its server is there.
func TestLazyOpen(t *testing.T) {
	s := testkit.StartRedis(t)
	s.Kill()
	b, err := throttr.Open(t.Context(), "redis://"+s.Addr+"?lazy=true&prefix=a:&max_log=5&max_queued=7&timeout=5s")
	noError(t, err)
	defer b.Close()
	_, parts := b.BackendCloser.(outage.Parts)
	expect(t, parts, "a node of a cluster that is away opens the circuit of all")
	l := limitOf(window.FixedWindow, time.Minute, 10)
	for _, err := range []error{
		errorOf(b.Hit(t.Context(), "k", l, 1)),
		errorOf(b.TakeAll(t.Context(), []window.Take{l.For("k", 1)}, make([]window.Window, 1))),
		b.Ping(t.Context()),
	} {
		expect(t, errors.Is(err, throttr.ErrUnavailable), "without a server: %v", err)
	}
	err = errorOf(b.Hit(t.Context(), "k", window.Limit{}, 1))
	expect(t, !errors.Is(err, throttr.ErrUnavailable) && errors.Is(err, throttr.ErrScale), "a mistake: %v", err)
	err = errorOf(b.Check(limitOf(window.SlidingLog, time.Minute, 6)))
	expect(t, errors.Is(err, throttr.ErrRange), "max_log: %v", err)
	stats := b.Stats().Stores
	expect(t, len(stats) == 1 && stats[0].Name == s.Addr && stats[0].Errors == 3 && errors.Is(stats[0].Err, throttr.ErrUnavailable), "%+v", stats)
	time.Sleep(3500 * time.Millisecond) // the pauses between attempts are at their longest
	s.Restart(t)
	for deadline := time.Now().Add(time.Second); b.Ping(t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
		expect(t, time.Now().Before(deadline), "the backend does not connect within a second")
	}
	w := must(t, b.Hit, "k", l, 1)
	expect(t, w.Count == 1 && b.Stats().Stores[0].Err == nil, "with a server: %+v, %+v", w, b.Stats())
	begun := time.Now()
	there, err := throttr.Open(t.Context(), "redis://"+s.Addr+"?lazy=true&prefix=a:")
	noError(t, err)
	defer there.Close()
	if time.Since(begun) < 400*time.Millisecond { // it has waited for the attempt to connect
		w = must(t, there.Hit, "k", l, 1)
		expect(t, w.Count == 2, "with a server that is there: %+v", w)
	}
	names := s.Must(t, "KEYS", "*")
	expect(t, names == "a:{k:k}:v2", "prefix: %q", names)
}

// Open runs the script, so what can't run it is no store.
func TestOpenRefusesAServerThatCanNotRunTheScript(t *testing.T) {
	primary := testkit.StartRedis(t)
	replica := testkit.StartRedis(t)
	replica.Must(t, "REPLICAOF", "127.0.0.1", primary.Port)
	limited := testkit.StartRedis(t)
	limited.Must(t, "ACL", "SETUSER", "limits", "on", ">pw", "+@all", "~other:*")
	for url, want := range map[string]string{
		"redis://" + testkit.StartSentinel(t, primary).Addr:                        "EVAL",
		"redis://" + testkit.StartRedis(t, "--rename-command", "EVALSHA", "").Addr: "EVALSHA",
		"redis://" + replica.Addr:                                                  "READONLY",
		"redis://limits:pw@" + limited.Addr:                                        "NOPERM",
	} {
		_, err := throttr.Open(t.Context(), url)
		expect(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %s", url, err, want)
	}
	b, err := throttr.Open(t.Context(), "redis://limits:pw@"+limited.Addr+"?prefix=other:")
	noError(t, err)
	b.Close()
	for _, s := range []*testkit.Redis{primary, limited} {
		expect(t, s.Must(t, "DBSIZE") == "0", "Open has written")
	}
}

// An address is pointed at a new primary, and the old one becomes a replica that keeps its connections.
func TestAPrimaryThatBecomesAReplicaIsLeft(t *testing.T) {
	old, next := testkit.StartRedis(t), testkit.StartRedis(t)
	var target atomic.Pointer[testkit.Redis]
	target.Store(old)
	addr := testkit.Proxy(t, target.Load, func(r io.Reader, _ bool) io.Reader { return r })
	b, err := throttr.Open(t.Context(), "redis://"+addr)
	noError(t, err)
	defer b.Close()
	limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil))
	hit := func() error { return errorOf(limiter.Hit(t.Context(), "k", time.Minute, 1000)) }
	noError(t, hit())
	old.Must(t, "REPLICAOF", "127.0.0.1", next.Port)
	for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(20 * time.Millisecond) { // it may be a replica for a while before the address changes
		expect(t, hit() != nil, "a replica counts")
	}
	target.Store(next)
	for begun := time.Now(); hit() != nil; time.Sleep(20 * time.Millisecond) {
		expect(t, time.Since(begun) < 5*time.Second, "after %v: %v", time.Since(begun), hit())
	}
}

// While a server hangs, Close does not wait for the timeouts of the client, and nobody waits for Close.
func TestCloseOfAServerThatHangsEndsSoon(t *testing.T) {
	s := testkit.StartRedis(t)
	b, err := throttr.Open(t.Context(), "redis://"+s.Addr)
	noError(t, err)
	limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil))
	hit := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return errorOf(limiter.Hit(ctx, "k", time.Minute, 100))
	}
	noError(t, hit(time.Second))
	s.Freeze(t)
	defer s.Thaw(t)
	go hit(time.Minute)
	time.Sleep(50 * time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	time.Sleep(50 * time.Millisecond)
	begun := time.Now()
	err = hit(20 * time.Millisecond)
	expect(t, err != nil && time.Since(begun) < 500*time.Millisecond, "a hit with a ctx of 20 ms took %v: %v", time.Since(begun), err)
	noError(t, <-closed)
	expect(t, time.Since(begun) < 10*time.Second, "Close took %v", time.Since(begun))
}

// A URL whose scheme is one of TLS trusts the CAs of the system, verifies the host, and needs TLS 1.2.
func TestURLWithTLSVerifiesTheServer(t *testing.T) {
	certificate, _ := testkit.Certificate(t, "localhost", time.Now().Add(time.Hour))
	certificates := []tls.Certificate{certificate}
	server := testkit.StartRedis(t).Addr
	addr := testkit.TLS(t, server, &tls.Config{Certificates: certificates})
	old := testkit.TLS(t, server, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11})
	for url, want := range map[string]string{
		addr:                       "certificate signed by unknown authority",
		addr + "?skip_verify=true": "",
		old + "?skip_verify=true":  "protocol version",
	} {
		b, err := throttr.Open(t.Context(), "rediss://"+url)
		expect(t, err == nil || errors.Is(err, window.ErrUnavailable), "%s: %v is not ErrUnavailable", url, err)
		if err == nil {
			err = errorOf(b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 5), 1))
			b.Close()
		}
		expect(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)), "%s: %v; want %q", url, err, want)
	}
}

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
				expect(t, entry[1] == "client|setinfo", "%s: denied: %s", url, entry[1]) // of Valkey, and Redis 7.2
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
