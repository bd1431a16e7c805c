package testkit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hashSlots is the number of hash hashSlots of a cluster.
const hashSlots = 16384

// Cluster is a cluster of primaries, each with a replica or all without.
type Cluster struct {
	Primaries, Replicas []*Redis
}

// nodeTimeout is how long a primary of a cluster must not respond before its replica takes over, while a
// test makes a primary fail. Otherwise it is patience.
const nodeTimeout = time.Second

// StartCluster starts a cluster of primaries with replicas that ends with the test.
func StartCluster(t testing.TB, primaries int) *Cluster {
	t.Helper()
	return startCluster(t, primaries, primaries)
}

// StartPrimaries starts a cluster without replicas that ends with the test.
func StartPrimaries(t testing.TB, primaries int) *Cluster {
	t.Helper()
	return startCluster(t, primaries, 0)
}

func startCluster(t testing.TB, primaries, replicas int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for i := range primaries + replicas {
		s := startNode(t)
		if i < primaries {
			c.Primaries = append(c.Primaries, s)
			first, last := i*hashSlots/primaries, (i+1)*hashSlots/primaries-1
			s.Must(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	// Nodes with the same epoch would change theirs later. A replica that has not heard of that in
	// time can't take over.
	for i, s := range c.nodes() {
		s.Must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i, s := range c.nodes() {
		for _, other := range c.nodes()[:i] {
			s.Must(t, "CLUSTER", "MEET", "127.0.0.1", other.Port, busPort(other.Port))
		}
	}
	c.await(t, "the nodes do not know each other", func(s *Redis) bool {
		return strings.Contains(s.Must(t, "CLUSTER", "INFO"), fmt.Sprintf("cluster_known_nodes:%d", primaries+replicas))
	})
	for i, s := range c.Replicas {
		s.Must(t, "CLUSTER", "REPLICATE", c.Primaries[i].Must(t, "CLUSTER", "MYID"))
	}
	c.await(t, "the cluster is not up", func(s *Redis) bool {
		return strings.Contains(s.Must(t, "CLUSTER", "INFO"), "cluster_state:ok")
	})
	for _, s := range c.Replicas {
		eventually(t, "a replica does not follow its primary", func() bool {
			return strings.Contains(s.Must(t, "INFO", "replication"), "master_link_status:up")
		})
	}
	return c
}

func startNode(t testing.TB) *Redis {
	t.Helper()
	return startRedis(t, func(port string) []string {
		return []string{"--cluster-enabled", "yes", "--cluster-port", busPort(port),
			"--cluster-node-timeout", milliseconds(patience), "--repl-diskless-sync-delay", "0",
			"--cluster-replica-validity-factor", "0"}
	})
}

// milliseconds formats a duration as Redis expects it.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// busPort returns the port of the cluster's bus of the node with a port.
func busPort(port string) string {
	n, _ := strconv.Atoi(port)
	return strconv.Itoa(n + busOffset)
}

// nodes returns all nodes.
func (c *Cluster) nodes() []*Redis { return slices.Concat(c.Primaries, c.Replicas) }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() (all []string) {
	for _, s := range c.nodes() {
		all = append(all, s.Addr)
	}
	return all
}

// FailOver kills a primary, and returns when its replica has taken over.
func (c *Cluster) FailOver(t testing.TB, primary int) {
	t.Helper()
	c.setTimeout(t, nodeTimeout, c.nodes())
	c.Primaries[primary].Kill()
	c.awaitFailOver(t, primary)
}

// awaitFailOver returns when the replica of a primary that was killed has taken over.
func (c *Cluster) awaitFailOver(t testing.TB, primary int) {
	t.Helper()
	awaitRole(t, c.Replicas[primary], "master")
	c.setTimeout(t, patience, c.without(c.Primaries[primary]))
}

// without returns all nodes but one.
func (c *Cluster) without(one *Redis) []*Redis {
	return slices.DeleteFunc(c.nodes(), func(s *Redis) bool { return s == one })
}

// setTimeout sets after how long nodes take another one for failed.
func (c *Cluster) setTimeout(t testing.TB, d time.Duration, nodes []*Redis) {
	t.Helper()
	for _, s := range nodes {
		s.Must(t, "CONFIG", "SET", "cluster-node-timeout", milliseconds(d))
	}
}

// awaitRole waits until a server has a role: "master" or "slave", as Redis calls them.
func awaitRole(t testing.TB, s *Redis, role string) {
	t.Helper()
	eventually(t, s.Addr+" does not become a "+role, func() bool {
		return strings.Contains(s.Must(t, "INFO", "replication"), "role:"+role)
	})
}

// await waits until ok returns true for every node.
func (c *Cluster) await(t testing.TB, failure string, ok func(*Redis) bool) {
	t.Helper()
	for _, s := range c.nodes() {
		eventually(t, failure, func() bool { return ok(s) })
	}
}

// eventually fails the test if ok does not return true within two minutes.
func eventually(t testing.TB, failure string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 2*time.Minute {
			t.Fatal(failure)
		}
	}
}
