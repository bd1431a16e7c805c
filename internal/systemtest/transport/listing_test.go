package transport_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

// A response with an unknown status is an error of each method that decodes one.
func TestInvalidStatusIsAProtocolError(t *testing.T) {
	ctx := t.Context()
	for op, run := range map[codec.Op]func(*throttr.Client[uint16]) error{
		codec.OpStat:    func(c *throttr.Client[uint16]) error { _, _, err := c.Stat(ctx, "k"); return err },
		codec.OpInfo:    func(c *throttr.Client[uint16]) error { _, err := c.Info(ctx); return err },
		codec.OpWhoAmI:  func(c *throttr.Client[uint16]) error { _, err := c.WhoAmI(ctx); return err },
		codec.OpPublish: func(c *throttr.Client[uint16]) error { _, err := c.Publish(ctx, "c", nil); return err },
		codec.OpConnection: func(c *throttr.Client[uint16]) error {
			_, _, err := c.Connection(ctx, testkit.ServerStats(c).Server, codec.ConnID{})
			return err
		},
		codec.OpList: func(c *throttr.Client[uint16]) error { return lastError(t, c.List(ctx)) },
	} {
		t.Run(op.String(), func(t *testing.T) {
			client, _ := responding[uint16](t, op, []byte{7}, throttr.Config{MaxRetries: -1})
			err := run(client)
			require.ErrorIs(t, err, throttr.ErrProtocol)
			var failed *throttr.RequestError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, op, failed.Op)
			require.True(t, failed.Sent)
		})
	}
}

// newFullServer starts a server with n records.
func newFullServer(t testing.TB, n int, opts ...mockserver.Option) *mockserver.Server {
	t.Helper()
	srv := mockserver.RunT(t, opts...)
	for i := range n {
		srv.Set("key:"+strconv.Itoa(i), 1, time.Hour)
	}
	return srv
}

func TestListDoesNotDelayHits(t *testing.T) {
	const callers, each = 8, 50
	keys := 1_000_000
	if race.Enabled {
		keys /= 10
	}
	// Connections in memory have no buffer: what the loop has not read, the server has not
	// sent.
	srv := newFullServer(t, keys, mockserver.WithAddr("memory", "memory:1"))
	client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, StallTimeout: time.Minute}))
	limiter := testkit.NewRateLimit(client.Backend())
	seen := map[string]bool{}
	for e, err := range client.List(t.Context()) {
		require.NoError(t, err)
		if seen[e.Key] = true; len(seen)%(keys/4) != 1 {
			continue
		}
		// The response to LIST has begun. The loop goes on when all hits are answered.
		var hits sync.WaitGroup
		for i := range callers {
			hits.Go(func() {
				for range each {
					if _, err := limiter.Hit(t.Context(), strconv.Itoa(i), time.Hour, 10_000); err != nil {
						t.Error(err)
					}
				}
			})
		}
		hits.Wait()
	}
	require.Len(t, seen, keys)
	for i := range callers {
		n, err := limiter.Get(t.Context(), strconv.Itoa(i), time.Hour)
		require.NoError(t, err)
		require.Equal(t, uint64(4*each), n)
	}
}
