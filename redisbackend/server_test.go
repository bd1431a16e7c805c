package redisbackend_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
)

// server is a Redis server that ends with the test.
type server struct {
	*testkit.Redis
	t testing.TB
}

// startServer starts a server on a free port.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	return &server{testkit.StartRedis(t, args...), t}
}

// startOnSocket starts a server on a Unix socket.
func startOnSocket(t testing.TB, args ...string) *server {
	t.Helper()
	return &server{testkit.StartRedisOnSocket(t, args...), t}
}

// startCluster starts a cluster of three nodes, each with a third of the slots.
func startCluster(t testing.TB) (nodes []*server) {
	t.Helper()
	for _, s := range testkit.StartPrimaries(t, 3).Primaries {
		nodes = append(nodes, &server{s, t})
	}
	return nodes
}

// patience is how long clients wait for a response: a busy machine may stop a server for seconds.
const patience = time.Minute

// connect returns a client of the server or of its cluster.
func (s *server) connect(opts ...func(*rueidis.ClientOption)) rueidis.Client {
	s.t.Helper()
	option := rueidis.ClientOption{InitAddress: []string{s.Addr}, ConnWriteTimeout: patience}
	if s.Network == "unix" {
		option.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.Dial(ctx, d)
		}
	}
	for _, opt := range opts {
		opt(&option)
	}
	return connectTo(s.t, option)
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
