package redisbackend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

func TestConformance(t *testing.T) {
	s := testkit.StartRedis(t)
	conformance(t, connect(t, s), connect(t, s))
}

// conformance runs the suite with two clients of one server.
func conformance(t *testing.T, client, second rueidis.Client) {
	testkit.Conform(t, func(opts ...rediswindow.Option) (one, other *rediswindow.Backend) {
		return redisbackend.New(client, opts...), redisbackend.New(second, opts...)
	})
}

func TestBackendOnAClusterConforms(t *testing.T) {
	nodes := testkit.StartCluster(t, 3, 0).Primaries
	client := connect(t, nodes[1])
	conformance(t, client, connect(t, nodes[0]))

	// The suite has few keys. These are spread over all nodes.
	b := redisbackend.New(client)
	for i := range 3000 {
		key := fmt.Sprint("user:", i%1000)
		w := must(t, b.Hit, key, limitOf(window.FixedWindow, time.Hour, 3), 1)
		expect(t, w.Count == uint64(i/1000+1), "%s: %+v", key, w)
	}
	for _, s := range nodes {
		expect(t, s.Must(t, "DBSIZE") != "0", "node %s has no keys", s.Addr)
		s.Must(t, "CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint") // it tells ports only
	}
	again := redisbackend.New(client)
	await(t, "the nodes are not known", func() bool {
		must(t, again.Peek, "k", limitOf(window.FixedWindow, time.Hour, 3), 0)
		return again.Part("k") != ""
	})
}
