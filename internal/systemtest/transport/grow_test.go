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

// TestWhileAServerIsAddedAKeyThatMovesHasTwoWindows has a client that knows of three servers
// and one that knows of a fourth, as while programs are restarted one after the other. A
// quarter of the keys moves: each of the two lets such a key's limit through. All other keys
// are limited as ever.
func TestWhileAServerIsAddedAKeyThatMovesHasTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, limit = 1000, 5
		servers := map[string]*mockserver.Server{}
		var names []string
		for i := range 4 {
			name := fmt.Sprintf("10.0.0.%d:9000", i+1)
			names = append(names, name)
			servers[name] = testkit.InMemory(t)
		}
		limiter := func(names []string) *throttr.RateLimit {
			client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
				Servers: names,
				Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
					return servers[addr].Dial(ctx)
				},
			})
			require.NoError(t, err)
			t.Cleanup(func() { client.Close() })
			return throttr.NewRateLimit(client.Backend())
		}
		before, after := limiter(names[:3]), limiter(names)
		moved := 0
		for i := range keys {
			key := fmt.Sprintf("user:%d", i)
			switch allowed := testkit.Hits(t, before, 2*limit, key, time.Minute, limit) + testkit.Hits(t, after, 2*limit, key, time.Minute, limit); allowed {
			case limit:
			case 2 * limit:
				moved++
			default:
				t.Errorf("%s: %d are allowed", key, allowed)
			}
		}
		t.Logf("%d of %d keys move", moved, keys)
		require.InDelta(t, keys/4, moved, keys/20)

		time.Sleep(time.Minute)
		for i := range keys { // once all programs know of it
			key := fmt.Sprintf("user:%d", i)
			require.Equal(t, limit, testkit.Hits(t, after, 2*limit, key, time.Minute, limit), key)
		}
	})
}
