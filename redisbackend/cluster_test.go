package redisbackend_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// startCluster starts a cluster of three nodes, each with a third of the slots.
func startCluster(t *testing.T) []*server {
	t.Helper()
	var nodes []*server
	for i := range 3 {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-port", freePort)
		first, last := i*16384/3, (i+1)*16384/3-1
		s.command(t, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last))
		if i > 0 {
			host, port, _ := net.SplitHostPort(nodes[0].addr)
			s.command(t, "CLUSTER", "MEET", host, port, nodes[0].args[slices.Index(nodes[0].args, "--cluster-port")+1])
		}
		nodes = append(nodes, s)
	}
	for _, s := range nodes {
		for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
			info := s.command(t, "CLUSTER", "INFO")
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the cluster is not up: %s", info)
			}
		}
	}
	return nodes
}

// command sends a command to this node, even if the key belongs to another node.
func (s *server) command(t *testing.T, args ...string) string {
	t.Helper()
	client := s.connect(func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
	m, err := redis(t, client, args...).ToMessage()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if n, err := m.AsInt64(); err == nil {
		return fmt.Sprint(n)
	}
	text, _ := m.ToString()
	return text
}

func TestBackendOnAClusterConforms(t *testing.T) {
	nodes := startCluster(t)
	client := nodes[1].connect()
	conformance(t, client, nodes[0].connect())

	// The suite has few keys. These are spread over all nodes.
	b := redisbackend.New(client)
	for i := range 3000 {
		key := fmt.Sprint("user:", i%1000)
		if w, err := b.Hit(t.Context(), key, limitOf(window.FixedWindow, time.Hour, 3), 1); err != nil || w.Count != uint64(i/1000+1) {
			t.Fatalf("%s: %+v, %v", key, w, err)
		}
	}
	for _, s := range nodes {
		if s.command(t, "DBSIZE") == "0" {
			t.Errorf("node %s has no keys", s.addr)
		}
	}
}

func TestSlotDependsOnHashTagAlone(t *testing.T) {
	s := startCluster(t)[0]
	client := s.connect()
	for _, test := range []struct{ key, tag string }{
		{"", "k:"},
		{"user:42", "k:user:42"},
		{"a}b", "h:" + sum("a}b")},
		{"{user}:42", "h:" + sum("{user}:42")},
		{strings.Repeat("k", 5000), "h:" + sum(strings.Repeat("k", 5000))},
	} {
		for _, prefix := range []string{"throttr:", "", "{a}", "}"} {
			b := redisbackend.New(client, rediswindow.WithPrefix(prefix))
			name := nameOf(t, s, b, test.key)
			if got, want := s.command(t, "CLUSTER", "KEYSLOT", name), s.command(t, "CLUSTER", "KEYSLOT", test.tag); got != want {
				t.Errorf("key %.20q with prefix %q is in slot %s, want %s", test.key, prefix, got, want)
			}
		}
	}
}

// nameOf hits a key and returns the name of its hash, the only key on the server or cluster.
func nameOf(t *testing.T, s *server, b *rediswindow.Backend, key string) string {
	t.Helper()
	client := s.connect()
	for _, node := range client.Nodes() {
		redis(t, node, "FLUSHALL")
	}
	if _, err := b.Charge(t.Context(), key, limitOf(window.FixedWindow, time.Hour, 10), 1); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, node := range client.Nodes() {
		some, err := redis(t, node, "KEYS", "*").AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, some...)
	}
	if len(names) != 1 {
		t.Fatalf("key %.20q is in Redis as %q", key, names)
	}
	return names[0]
}
