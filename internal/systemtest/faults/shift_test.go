package faults_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// A record whose TTL is longer than that of any window of that scale must be the response to another
// request. No hit is decided by it, and the connection ends. The unit tells nothing (H19).
func TestImpossibleTTLEndsTheConnection(t *testing.T) {
	const scale = time.Minute
	bands, _ := slot.BandsFor(scale, math.MaxUint16)
	require.Equal(t, time.Second, bands.Unit)
	longest := uint16(bands.Top)
	for _, ttl := range []codec.TTL[uint16]{
		{Amount: longest + 1, Unit: codec.Seconds},
		{Amount: longest + 1, Unit: 80},
	} {
		for name, hits := range map[string]int{"lookup": 0, "known window": 1} { // hits before
			t.Run(fmt.Sprintf("%v/%s", ttl, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testkit.InMemory(t)
					client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxRetries: -1}))
					limiter := testkit.NewRateLimit(client.Backend())
					testkit.Hits(t, limiter, 1, "another", scale, 5)
					time.Sleep(time.Second) // for the sweeper, which also makes QUERYs
					require.Equal(t, hits, testkit.Hits(t, limiter, hits, "k", scale, 5))
					other := testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: 3, TTL: ttl})
					srv.Inject(mockserver.Fault{Op: codec.OpQuery, Times: 1, Replace: other})
					res, err := limiter.Hit(t.Context(), "k", scale, 5)
					if hits == 0 { // a lookup changes nothing, so it is repeated on another connection
						require.NoError(t, err)
						require.True(t, res.Allowed)
					} else {
						require.ErrorIs(t, err, throttr.ErrProtocol)
						require.Zero(t, res)
					}
					synctest.Wait() // the pool learns of the end after the call
					require.EqualValues(t, 1, testkit.ServerStats(client).Failures)
					require.Positive(t, testkit.Hits(t, limiter, 1, "k", scale, 5), "on another connection")
				})
			})
		}
	}
	t.Run("longest possible", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			limiter := testkit.Limiter[uint16](t, srv)
			testkit.Hits(t, limiter, 1, "another", scale, 5)
			time.Sleep(time.Second) // for the sweeper, which also makes QUERYs
			ttl := codec.TTL[uint16]{Amount: longest, Unit: codec.Seconds}
			response := testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: math.MaxUint16 - 3, TTL: ttl})
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Times: 1, Replace: response})
			n, err := limiter.Get(t.Context(), "k", scale)
			require.NoError(t, err)
			require.EqualValues(t, 3, n)
		})
	})
}
