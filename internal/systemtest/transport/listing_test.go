package transport_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

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
	keys := testkit.Fewer(1_000_000)
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
