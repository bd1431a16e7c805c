package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// severalClients returns limiters with clients of their own, of servers that respond after a millisecond.
func severalClients(t *testing.T, clients, servers int) []*throttr.RateLimit {
	all, connect := severalServers(t, servers)
	limiters := make([]*throttr.RateLimit, clients)
	for i := range limiters {
		limiters[i] = testkit.NewRateLimit(connect(throttr.Config{}).Backend())
	}
	for _, srv := range all {
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	}
	return limiters
}

// Clients that want the last place of the same windows name them in different orders.
func TestClientsDoNotRefuseEachOther(t *testing.T) {
	for _, servers := range []int{1, 3} {
		for _, scales := range [][]time.Duration{{time.Minute}, {time.Second, time.Minute}} {
			t.Run(fmt.Sprintf("servers: %d, scales: %v", servers, scales), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const clients, rounds = 3, 60
					limiters := severalClients(t, clients, servers)
					for round := range rounds {
						takes := make([]throttr.Take, 4)
						for i := range takes {
							takes[i] = throttr.Take{Key: fmt.Sprint(round, "-", i), Limit: throttr.Limit{Max: clients + 1, Scale: scales[i%len(scales)]}, N: 1}
						}
						for _, l := range limiters { // each knows the windows
							ok, _, err := l.TakeAll(t.Context(), takes...)
							require.NoError(t, err)
							require.True(t, ok)
						}
						var granted atomic.Int64
						var callers sync.WaitGroup
						for _, l := range limiters {
							mine := slices.Clone(takes)
							rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
							callers.Go(func() {
								time.Sleep(rand.N(500 * time.Microsecond))
								ok, _, err := l.TakeAll(t.Context(), mine...)
								if err != nil {
									t.Errorf("round %d: %v", round, err)
								}
								if ok {
									granted.Add(1)
								}
							})
						}
						callers.Wait()
						require.EqualValues(t, 1, granted.Load(), "round %d", round)
						for _, l := range takes {
							n, err := limiters[0].Get(t.Context(), l.Key, l.Limit.Scale)
							require.NoError(t, err)
							require.EqualValues(t, clients+1, n, "round %d, key %s", round, l.Key)
						}
					}
				})
			})
		}
	}
}
