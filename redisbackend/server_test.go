package redisbackend_test

import (
	"context"
	"crypto/tls"
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
)

// patience is how long clients wait for a response: a busy machine may stop a server for seconds.
const patience = time.Minute

// connect returns a client of a server, or of its cluster.
func connect(t testing.TB, s *testkit.Redis, opts ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	option := rueidis.ClientOption{InitAddress: []string{s.Addr}, ConnWriteTimeout: patience}
	if s.Network == "unix" {
		option.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.Dial(ctx, d)
		}
	}
	for _, opt := range opts {
		opt(&option)
	}
	return connectTo(t, option)
}

// onCluster returns a client of a cluster.
func onCluster(t testing.TB, c *testkit.Cluster) rueidis.Client {
	t.Helper()
	return connectTo(t, rueidis.ClientOption{InitAddress: c.Addrs()})
}

// connectTo returns a client that is closed at the end of the test.
func connectTo(t testing.TB, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	noError(t, err)
	t.Cleanup(client.Close)
	return client
}

// redis sends a command that must not fail.
func redis(t testing.TB, client rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	r := client.Do(context.Background(), client.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
	return r
}

// timesCalled returns how often a server has executed a command.
func timesCalled(t testing.TB, s *testkit.Redis, command string) int {
	m := regexp.MustCompile("cmdstat_" + command + `:calls=(\d+)`).FindStringSubmatch(s.Must(t, "INFO", "commandstats"))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	noError(t, err)
	return n
}

// number returns what a command replies.
func number(t testing.TB, client rueidis.Client, args ...string) int {
	t.Helper()
	n, err := redis(t, client, args...).AsInt64()
	noError(t, err)
	return int(n)
}
