//go:build unix

package redisbackend_test

import (
	"testing"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// Redis replicates asynchronously: a replica that takes over may have missed the last hits.
func TestFailoverAllowsFewHitsMore(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	requireFewMore(t, func() { failOver(t, c, 0) }, backendsOn(t, c)...)
}

// backendsOn returns two backends on a cluster, each with a client of its own.
func backendsOn(t *testing.T, c *testkit.Cluster) (backends []window.Backend) {
	t.Helper()
	for range 2 {
		backends = append(backends, redisbackend.New(onCluster(t, c)))
	}
	return backends
}

// The old primary goes on when its replica has taken over. It then executes the requests that it
// had received, and loses them.
func TestPrimaryThatComesBackAllowsFewHitsMore(t *testing.T) {
	c := testkit.StartCluster(t, 3, 3)
	requireFewMore(t, func() { cutOff(t, c, 0) }, backendsOn(t, c)...)
}
