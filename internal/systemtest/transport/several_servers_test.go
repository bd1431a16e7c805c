package transport_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// cluster holds servers in memory by their addresses.
type cluster map[string]*mockserver.Server

// newCluster starts n servers and returns them with their addresses.
func newCluster(t *testing.T, n int) (cluster, []string) {
	t.Helper()
	c := cluster{}
	var addresses []string
	for i := range n {
		address := fmt.Sprintf("10.0.0.%d:9000", i+1)
		addresses = append(addresses, address)
		c[address] = testkit.InMemory(t)
	}
	return c, addresses
}

// client returns a client of some servers that is closed at the end of the test.
func (c cluster) client(t *testing.T, addresses []string) *throttr.Client[uint16] {
	t.Helper()
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
		Servers: addresses,
		Dial:    func(ctx context.Context, _, address string) (net.Conn, error) { return c[address].Dial(ctx) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// Programs are restarted one after the other, so that for a while some know of three servers
// and some of four. A quarter of the keys moves. Until all programs are restarted, both groups
// allow such a key its whole limit. Other keys are not affected.
func TestKeyThatMovesToAnAddedServerHasTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, limit = 1000, 5
		servers, addresses := newCluster(t, 4)
		before := testkit.NewRateLimit(servers.client(t, addresses[:3]).Backend())
		after := testkit.NewRateLimit(servers.client(t, addresses).Backend())
		moved := 0
		for i := range keys {
			key := fmt.Sprintf("user:%d", i)
			allowed := testkit.Hits(t, before, 2*limit, key, time.Minute, limit)
			allowed += testkit.Hits(t, after, 2*limit, key, time.Minute, limit)
			switch allowed {
			case limit:
			case 2 * limit:
				moved++
			default:
				t.Errorf("%s: %d hits were allowed", key, allowed)
			}
		}
		t.Logf("%d of %d keys move", moved, keys)
		require.InDelta(t, keys/4, moved, keys/20)

		time.Sleep(time.Minute)
		for i := range keys { // when all programs know of the fourth server
			key := fmt.Sprintf("user:%d", i)
			require.Equal(t, limit, testkit.Hits(t, after, 2*limit, key, time.Minute, limit), key)
		}
	})
}
