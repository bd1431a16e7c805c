//go:build unix

package redisbackend_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit"
)

// nodeTimeout is how long a primary of a cluster must not respond before its replica takes over, while a
// test makes a primary fail. Otherwise it is patience.
const nodeTimeout = time.Second

// failOver kills a primary, and returns when its replica has taken over.
func failOver(t *testing.T, c *testkit.Cluster, primary int) {
	t.Helper()
	setNodeTimeout(t, nodeTimeout, c.Nodes())
	c.Primaries[primary].Kill()
	awaitRole(t, c.Replicas[primary], "master")
	others := slices.DeleteFunc(c.Nodes(), func(s *testkit.Redis) bool { return s == c.Primaries[primary] })
	setNodeTimeout(t, patience, others)
}

// setNodeTimeout sets after how long nodes take another one for failed.
func setNodeTimeout(t *testing.T, d time.Duration, nodes []*testkit.Redis) {
	t.Helper()
	for _, s := range nodes {
		s.Must(t, "CONFIG", "SET", "cluster-node-timeout", strconv.FormatInt(d.Milliseconds(), 10))
	}
}

// awaitRole waits until a server has a role: "master" or "slave", as Redis calls them.
func awaitRole(t *testing.T, s *testkit.Redis, role string) {
	t.Helper()
	await(t, s.Addr+" does not become a "+role, func() bool {
		return strings.Contains(s.Must(t, "INFO", "replication"), "role:"+role)
	})
}

// cutOff stops the process of a primary, whose connections stay open, and lets it go on when its
// replica has taken over. It returns when the old primary follows the new one.
func cutOff(t *testing.T, c *testkit.Cluster, primary int) {
	t.Helper()
	old := c.Primaries[primary]
	setNodeTimeout(t, nodeTimeout, c.Nodes())
	old.Freeze(t)
	awaitRole(t, c.Replicas[primary], "master")
	old.Thaw(t)
	awaitRole(t, old, "slave")
	setNodeTimeout(t, patience, c.Nodes())
}
