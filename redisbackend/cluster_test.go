package redisbackend_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

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
		expect(t, s.Must(t, "DBSIZE") != "0", "node %s has no keys", s.Addr)
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
			if got, want := s.Must(t, "CLUSTER", "KEYSLOT", name), s.Must(t, "CLUSTER", "KEYSLOT", test.tag); got != want {
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
	must(t, b.Charge, key, limitOf(window.FixedWindow, time.Hour, 10), 1)
	var names []string
	for _, node := range client.Nodes() {
		some, err := redis(t, node, "KEYS", "*").AsStrSlice()
		noError(t, err)
		names = append(names, some...)
	}
	expect(t, len(names) == 1, "key %.20q is in Redis as %q", key, names)
	return names[0]
}
