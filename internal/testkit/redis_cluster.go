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

// StartCluster starts a cluster of primaries with replicas that ends with the test. A replica takes over when its
// primary has not responded for cluster-node-timeout, a minute.
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
	for i, s := range c.Nodes() {
		s.Must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i, s := range c.Nodes() {
		for _, other := range c.Nodes()[:i] {
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
			"--cluster-node-timeout", strconv.FormatInt(patience.Milliseconds(), 10), "--repl-diskless-sync-delay", "0",
			"--cluster-replica-validity-factor", "0"}
	})
}

// busPort returns the port of the cluster's bus of the node with a port.
func busPort(port string) string {
	n, _ := strconv.Atoi(port)
	return strconv.Itoa(n + busOffset)
}

// Nodes returns all nodes.
func (c *Cluster) Nodes() []*Redis { return slices.Concat(c.Primaries, c.Replicas) }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() (all []string) {
	for _, s := range c.Nodes() {
		all = append(all, s.Addr)
	}
	return all
}

// await waits until ok returns true for every node.
func (c *Cluster) await(t testing.TB, failure string, ok func(*Redis) bool) {
	t.Helper()
	for _, s := range c.Nodes() {
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
