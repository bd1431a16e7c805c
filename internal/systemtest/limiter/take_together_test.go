package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// severalClients returns limiters with clients of their own, of servers that respond after up to a
// few milliseconds. The clients name the servers in different orders.
func severalClients(t *testing.T, clients, servers int) ([]*throttr.RateLimit, []*mockserver.Server) {
	var all []*mockserver.Server
	var names []string
	dials := map[string]func(context.Context) (net.Conn, error){}
	for i := range servers {
		srv := mockserver.RunT(t, mockserver.WithAddr("memory", fmt.Sprintf("memory:%d", i+1)))
		all, names, dials[srv.Addr()] = append(all, srv), append(names, srv.Addr()), srv.Dial
	}
	limiters := make([]*throttr.RateLimit, clients)
	for i := range limiters {
		client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
			Servers: slices.Clone(names),
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				time.Sleep(rand.N(time.Millisecond))
				return dials[address](ctx)
			},
		})
		require.NoError(t, err)
		t.Cleanup(func() { client.Close() })
		limiters[i] = testkit.NewRateLimit(client.Backend())
		slices.Reverse(names)
	}
	return limiters, all
}

// Clients that want the last place of the same windows name them in different orders.
//
//evidence:takes Of clients that want the last place of windows at the same time, one gets it
func TestClientsDoNotRefuseEachOther(t *testing.T) {
	for _, servers := range []int{1, 3} {
		for _, scales := range [][]time.Duration{{time.Minute}, {time.Second, time.Minute}} {
			t.Run(fmt.Sprintf("servers: %d, scales: %v", servers, scales), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const clients, rounds = 3, 60
					limiters, all := severalClients(t, clients, servers)
					for _, srv := range all {
						defer srv.Inject(mockserver.Fault{Delay: time.Millisecond})()
					}
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
		takes := []throttr.Take{
			{Key: "a", Limit: throttr.Limit{Max: 10, Scale: time.Minute}, N: 4}, {Key: "b", Limit: throttr.Limit{Max: 10, Scale: time.Minute}, N: 4}, {Key: "c", Limit: throttr.Limit{Max: 10, Scale: time.Minute}, N: 4},
		}
		for _, reset := range []string{"a", "b", "c"} {
			ok, _, err := limiters[0].TakeAll(t.Context(), takes...)
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, limiters[1].Reset(t.Context(), reset, time.Minute))
			ok, results, err := limiters[0].TakeAll(t.Context(), takes...)
			require.NoError(t, err)
			require.True(t, ok, "%+v", results)
			for _, l := range takes {
				n, err := limiters[1].Get(t.Context(), l.Key, time.Minute)
				require.NoError(t, err)
				want := uint64(8)
				if l.Key == reset {
					want = 4
				}
				require.Equal(t, want, n, "key %s after a reset of %s", l.Key, reset)
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
		takes := []throttr.Take{{Key: "a", Limit: throttr.Limit{Max: 10, Scale: time.Minute}, N: 3}, {Key: "b", Limit: throttr.Limit{Max: 10, Scale: time.Minute}, N: 3}}
		ok, _, err := limiters[0].TakeAll(t.Context(), takes...)
		require.NoError(t, err)
		require.True(t, ok)
		remove := all[0].Inject(mockserver.Fault{Op: codec.OpUpdate, Delay: 10 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _, err = limiters[0].TakeAll(ctx, takes...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, testkit.SafeToRetry(err))
		remove()
		ok, results, err := limiters[0].TakeAll(t.Context(), takes...)
		require.NoError(t, err)
		require.True(t, ok)
		for i, l := range takes {
			n, err := limiters[1].Get(t.Context(), l.Key, time.Minute)
			require.NoError(t, err)
			require.EqualValues(t, 9, n, "the takes that were given up are counted")
			require.EqualValues(t, 9, results[i].Count)
		}
	})
}

// While takes of several windows are in flight, hits and takes of one of them are counted, too.
func TestTakesOfSeveralWindowsAmongOthers(t *testing.T) {
	for _, servers := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			limiters, all := severalClients(t, 2, servers)
			for _, srv := range all {
				srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			}
			var want [3]atomic.Uint64
			key := func(i int) string { return string(rune('a' + i)) }
			var callers sync.WaitGroup
			for g := range 40 {
				l := limiters[g%2]
				callers.Go(func() {
					for i := range 50 {
						k := (g + i) % 3
						var err error
						ok := true
						switch i % 3 {
						case 0:
							_, err = l.Hit(t.Context(), key(k), time.Minute, 65000)
							want[k].Add(1)
						case 1:
							_, err = l.Take(t.Context(), key(k), throttr.Limit{Max: 65000, Scale: time.Minute}, 2)
							want[k].Add(2)
						default:
							ok, _, err = l.TakeAll(t.Context(), throttr.Take{Key: key(k), Limit: throttr.Limit{Max: 65000, Scale: time.Minute}, N: 3},
								throttr.Take{Key: key((k + 1) % 3), Limit: throttr.Limit{Max: 65000, Scale: time.Minute}, N: 1})
							want[k].Add(3)
							want[(k+1)%3].Add(1)
						}
						if err != nil || !ok {
							t.Error(ok, err)
						}
						time.Sleep(rand.N(5 * time.Millisecond))
					}
				})
			}
			callers.Wait()
			for k := range want {
				n, err := limiters[0].Get(t.Context(), key(k), time.Minute)
				require.NoError(t, err)
				require.Equal(t, want[k].Load(), n, "key %s", key(k))
			}
			testkit.RequireRemoved(t, all[0], testkit.Idle[uint16](t, time.Minute))
		})
	}
}
