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
	awaitFailOver(t, c, primary)
}

// awaitFailOver returns when the replica of a primary that was killed has taken over.
func awaitFailOver(t *testing.T, c *testkit.Cluster, primary int) {
	t.Helper()
	awaitRole(t, c.Replicas[primary], "master")
	setNodeTimeout(t, patience, without(c, c.Primaries[primary]))
}

// without returns all nodes but one.
func without(c *testkit.Cluster, one *testkit.Redis) []*testkit.Redis {
	return slices.DeleteFunc(c.Nodes(), func(s *testkit.Redis) bool { return s == one })
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

// failOverBehind is failOver of a primary whose replica misses what is written while the function is called. It returns
// when the primary was killed.
func failOverBehind(t *testing.T, c *testkit.Cluster, primary int, missed func()) (killed time.Time) {
	t.Helper()
	replica := c.Replicas[primary]
	setNodeTimeout(t, nodeTimeout, c.Nodes())
	replica.Freeze(t)
	c.Primaries[primary].Must(t, "CLIENT", "KILL", "TYPE", "replica") // otherwise the system keeps for it what it is sent
	missed()
	killed = time.Now()
	c.Primaries[primary].Kill()
	replica.Thaw(t)
	awaitFailOver(t, c, primary)
	return killed
}
