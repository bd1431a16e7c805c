package throttr_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// cluster holds servers in memory.
type cluster struct {
	names   []string
	servers map[string]*mockserver.Server
}

// newCluster starts n servers.
func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{servers: make(map[string]*mockserver.Server)}
	for i := range n {
		name := fmt.Sprintf("server%d:9000", i)
		c.names = append(c.names, name)
		c.servers[name] = mockserver.RunT(t, mockserver.WithAddr("memory", name))
	}
	return c
}

// connect returns a client of some servers that is closed at the end of the test.
func (c *cluster) connect(t *testing.T, cfg throttr.Config, names ...string) *throttr.Client[uint16] {
	t.Helper()
	cfg.Servers = names
	cfg.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return c.servers[address].Dial(ctx) }
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// home returns the name of the server that has a counter.
func (c *cluster) home(key string) string {
	for _, name := range c.names {
		if _, ok := c.servers[name].Counter(key); ok {
			return name
		}
	}
	return ""
}

func TestBatchReachesTheServersOfItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 300
		c := newCluster(t, 3)
		client := c.connect(t, throttr.Config{MaxInFlight: 30}, c.names...)
		var b throttr.Batch[uint16]
		var inserts []throttr.Reply[uint16]
		var queries []throttr.CounterReply[uint16]
		for i := range keys {
			key := fmt.Sprint("user:", i)
			inserts = append(inserts, b.Insert(key, uint16(i), testkit.Minute))
			queries = append(queries, b.Query(key))
		}
		require.Equal(t, 2*keys, b.Len())
		require.NoError(t, client.Do(t.Context(), &b))
		homes := map[string]int{}
		for i := range keys {
			ok, err := inserts[i].OK()
			require.NoError(t, err)
			require.True(t, ok)
			counter, ok, err := queries[i].Counter()
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, i, counter.Quota)
			homes[c.home(fmt.Sprint("user:", i))]++
		}
		require.Len(t, homes, 3)
		for i, s := range client.Stats().Servers {
			require.Equal(t, c.names[i], s.Server)
			require.EqualValues(t, 1+2*homes[s.Server], s.Answered, "the client has made one request itself")
		}
	})
}
