package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hashSlots is the number of hash slots of a cluster.
const hashSlots = 16384

// Cluster is a cluster of primaries and their replicas.
type Cluster struct {
	Primaries, Replicas []*Redis
}

// StartCluster starts a cluster of primaries, and of replicas for the first of them, that ends with the test. A replica
// takes over when its primary has not responded for cluster-node-timeout, a minute.
func StartCluster(t testing.TB, primaries, replicas int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for i := range primaries + replicas {
		s := startRedis(t, func(port string) []string {
			return []string{"--cluster-enabled", "yes", "--cluster-port", busPort(port),
				"--cluster-node-timeout", strconv.FormatInt(patience.Milliseconds(), 10),
				"--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"}
		})
		// Nodes with the same epoch would change theirs later. A replica that has not heard of that in
		// time can't take over.
		s.Must(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		for _, other := range c.Nodes() {
			s.Must(t, "CLUSTER", "MEET", "127.0.0.1", other.Port, busPort(other.Port))
		}
		if i < primaries {
			c.Primaries = append(c.Primaries, s)
			first, last := i*hashSlots/primaries, (i+1)*hashSlots/primaries-1
			s.Must(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	await(t, c.Nodes(), fmt.Sprintf("cluster_known_nodes:%d", primaries+replicas), "CLUSTER", "INFO")
	for i, s := range c.Replicas {
		s.Must(t, "CLUSTER", "REPLICATE", c.Primaries[i].Must(t, "CLUSTER", "MYID"))
	}
	await(t, c.Nodes(), "cluster_state:ok", "CLUSTER", "INFO")
	await(t, c.Replicas, "master_link_status:up", "INFO", "replication")
	return c
}

// busPort returns the port of the cluster's bus of the node with a port: the next one. The default, which is 10,000
// away, leaves less than half of the ports.
func busPort(port string) string {
	n, _ := strconv.Atoi(port)
	return strconv.Itoa(n + 1)
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

// await waits until the replies of all nodes to a command have a text.
func await(t testing.TB, nodes []*Redis, text string, command ...string) {
	t.Helper()
	for _, s := range nodes {
		for start := time.Now(); !strings.Contains(s.Must(t, command...), text); time.Sleep(10 * time.Millisecond) {
			if time.Since(start) > 2*time.Minute {
				t.Fatalf("%s does not reply with %s to %v", s.Addr, text, command)
			}
		}
	}
}

// SentinelName is the name under which a Sentinel knows its primary.
const SentinelName = "primary"

// StartSentinel starts a Sentinel that watches a primary. It ends with the test.
func StartSentinel(t testing.TB, primary *Redis) *Redis {
	t.Helper()
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 1\n", SentinelName, primary.Port)
	NoError(t, os.WriteFile(config, []byte(text), 0o644))
	return StartRedis(t, config, "--sentinel")
}
