package redisbackend_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
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
