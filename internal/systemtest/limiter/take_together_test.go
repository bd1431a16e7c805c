package limiter_test

import (
	"context"
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
func severalClients(t *testing.T, clients, servers int) ([]*throttr.RateLimit, []*mockserver.Server) {
	all, connect := severalServers(t, servers)
	limiters := make([]*throttr.RateLimit, clients)
	for i := range limiters {
		limiters[i] = testkit.NewRateLimit(connect(throttr.Config{}).Backend())
	}
	for _, srv := range all {
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	}
	return limiters, all
}

// requireTaken requires that takes are granted, and then the count of each key.
func requireTaken(t *testing.T, by, other *throttr.RateLimit, takes []throttr.Take, counts map[string]uint64) {
	t.Helper()
	ok, results, err := by.TakeAll(t.Context(), takes...)
	require.NoError(t, err)
	require.True(t, ok, "%+v", results)
	requireCounts(t, other, counts)
}

// requireCounts requires the counts of keys, in windows of a minute.
func requireCounts(t *testing.T, l *throttr.RateLimit, counts map[string]uint64) {
	t.Helper()
	for key, want := range counts {
		n, err := l.Get(t.Context(), key, time.Minute)
		require.NoError(t, err)
		require.Equal(t, want, n, "key %s", key)
	}
}

// Clients that want the last place of the same windows name them in different orders.
func TestClientsDoNotRefuseEachOther(t *testing.T) {
	for _, servers := range []int{1, 3} {
		for _, scales := range [][]time.Duration{{time.Minute}, {time.Second, time.Minute}} {
			t.Run(fmt.Sprintf("servers: %d, scales: %v", servers, scales), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const clients, rounds = 3, 60
					limiters, _ := severalClients(t, clients, servers)
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

// Windows that are known have ended, because another client has reset them.
func TestTakesOfWindowsThatAnotherClientHasReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiters, _ := severalClients(t, 2, 1)
		takes := takesOf(10, 4, "a", "b", "c")
		for _, reset := range []string{"a", "b", "c"} {
			requireTaken(t, limiters[0], limiters[1], takes, map[string]uint64{"a": 4, "b": 4, "c": 4})
			require.NoError(t, limiters[1].Reset(t.Context(), reset, time.Minute))
			want := map[string]uint64{"a": 8, "b": 8, "c": 8}
			want[reset] = 4
			requireTaken(t, limiters[0], limiters[1], takes, want)
			for _, l := range takes {
				require.NoError(t, limiters[0].Reset(t.Context(), l.Key, time.Minute))
			}
		}
	})
}

// A caller gives up while its takes are in flight. They are counted, or not, but never twice, and the
// next calls know the counts.
func TestTakesWhoseCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiters, all := severalClients(t, 2, 1)
		takes := takesOf(10, 3, "a", "b")
		requireTaken(t, limiters[0], limiters[1], takes, map[string]uint64{"a": 3, "b": 3})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
		defer cancel()
		_, _, err := limiters[0].TakeAll(ctx, takes...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, testkit.SafeToRetry(err))
		requireTaken(t, limiters[0], limiters[1], takes, map[string]uint64{"a": 9, "b": 9})
		requireRemoved(t, all[0], idle[uint16](t, time.Minute))
	})
}

// While takes of several windows are in flight, hits and takes of one of them are counted, too.
func TestTakesOfSeveralWindowsAmongOthers(t *testing.T) {
	for _, servers := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			const limit = 65000
			limiters, _ := severalClients(t, 2, servers)
			var mu sync.Mutex // guards want
			want := map[string]uint64{}
			var callers sync.WaitGroup
			for g := range 40 {
				l := limiters[g%2]
				callers.Go(func() {
					for i := range 50 {
						key, next := string(rune('a'+(g+i)%3)), string(rune('a'+(g+i+1)%3))
						takes := takesOf(limit, 1+uint64(i%3), key, next)[:1+i%2]
						ok, _, err := l.TakeAll(t.Context(), takes...)
						if err != nil || !ok {
							t.Error(ok, err)
						}
						if _, err := l.Hit(t.Context(), key, time.Minute, limit); err != nil {
							t.Error(err)
						}
						mu.Lock()
						want[key]++
						for _, take := range takes {
							want[take.Key] += take.N
						}
						mu.Unlock()
						time.Sleep(rand.N(5 * time.Millisecond))
					}
				})
			}
			callers.Wait()
			requireCounts(t, limiters[0], want)
		})
	}
}
