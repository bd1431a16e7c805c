package algorithms_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	value "github.com/throttr-go/throttr/codec/uint64"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// serverRates are the rates of tests on servers.
var serverRates = []rate{{time.Second, 20}, {time.Minute, 50}, {7 * time.Second, 3}}

// onServers returns limiters on a mock server, each with a key of its own, for a test in a bubble of
// testing/synctest. The given number of clients make their hits in turns.
func onServers(t *testing.T, n int) (start func(rate) limiter) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(value.Size))
	clients := make([]*throttr.RateLimit, n)
	for i := range clients {
		clients[i] = testkit.LimiterOf[value.Value](t, srv, throttr.SlidingWindow)
	}
	keys, calls := 0, 0
	return func(r rate) limiter {
		keys++
		key := fmt.Sprint(keys)
		zero := time.Unix((time.Now().Unix()/420+1)*420, 0) // a multiple of all scales
		return func(at time.Duration, n uint64) decision {
			time.Sleep(time.Until(zero.Add(at)))
			calls++
			res, err := clients[calls%len(clients)].HitN(t.Context(), key, throttr.Limit{Max: r.limit, Scale: r.scale}, n)
			require.NoError(t, err)
			return decision{res.Allowed, res.RetryAfter, res.Count}
		}
	}
}

// TestSlidingOnServersHoldsInEveryInterval is TestLimitsHoldInEveryInterval for two clients of a mock
// server, with fewer hits.
func TestSlidingOnServersHoldsInEveryInterval(t *testing.T) {
	for _, r := range serverRates {
		for _, p := range patterns {
			t.Run(fmt.Sprintf("%s, %v", p.name, r), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					random := rand.New(rand.NewPCG(13, 14))
					allowed := call(onServers(t, 2)(r), p.start(random, r), 500)
					require.NoError(t, bounds[throttr.SlidingWindow](r, allowed))
					alone := call(onServers(t, 1)(r), p.start(rand.New(rand.NewPCG(13, 14)), r), 500)
					exact := call(newReferenceSliding(r), p.start(rand.New(rand.NewPCG(13, 14)), r), 500)
					require.Equal(t, exact, alone, "one client decides as the definition says")
				})
			})
		}
	}
}

// Other clients may hit before the caller does, and a client does not ask for each hit that it refuses:
// see throttr.WithDenialMemory. So the caller is alone.
func TestCallerOfAServerThatWaitsForRetryAfterIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, starves(serverRates, 6000, onServers(t, 1)))
	})
}
