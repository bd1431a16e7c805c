package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// requests counts the requests that a server has executed for the windows of one key, and those
// that keep the server parked.
type requests struct{ inserts, updates, queries, purges, parks int }

// countRequests starts a server and returns it with what counts its requests since the last
// call.
func countRequests(t *testing.T, key string) (srv *mockserver.Server, count func() requests) {
	var mu sync.Mutex // guards n
	var n requests
	srv = testkit.InMemory(t, mockserver.WithObserver(func(x mockserver.Exec) {
		mu.Lock()
		defer mu.Unlock()
		switch window := strings.HasSuffix(x.Key, ":"+key); {
		case window && x.Op == codec.OpInsert:
			n.inserts++
		case window && x.Op == codec.OpUpdate:
			n.updates++
		case window && x.Op == codec.OpQuery:
			n.queries++
		case window && x.Op == codec.OpPurge:
			n.purges++
		case x.Key == "" && x.Op == codec.OpUpdate:
			n.parks++
		}
	}))
	return srv, func() requests {
		mu.Lock()
		defer mu.Unlock()
		r := n
		n = requests{}
		return r
	}
}

func TestRequestsOfAWindow(t *testing.T) {
	type step struct {
		name string
		wait time.Duration
		want requests
	}
	hit := step{"a hit on a known window", time.Second, requests{updates: 1, queries: 1}}
	steps := []step{
		{"the first window of a key", 0, requests{inserts: 1, queries: 2}},
		hit,
		{"the second window", time.Minute, requests{inserts: 1, updates: 2, queries: 2}},
		hit,
		{"a window of a returning key", time.Minute, requests{updates: 4, queries: 3}},
		hit,
		{"a window of a returning key", time.Minute, requests{updates: 4, queries: 3}},
	}
	for parking, parks := range map[throttr.Parking]int{throttr.ParkingNever: 0, throttr.ParkingAutomatic: 1, throttr.ParkingAlways: 1} {
		t.Run(fmt.Sprintf("parking %v", parking), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, count := countRequests(t, "k")
				cfg := throttr.Config{HealthInterval: time.Hour, Parking: parking}
				limiter := testkit.NewRateLimit(testkit.Connect[uint16](t, srv, testkit.Over(srv, cfg)).Backend())
				testkit.Hits(t, limiter, 1, "another", time.Minute, 10) // so that there are connections
				for _, step := range steps {
					time.Sleep(step.wait)
					count()
					testkit.Hits(t, limiter, 1, "k", time.Minute, 10)
					got := count()
					step.want.parks = parks * step.want.inserts
					require.Equal(t, step.want, got, step.name)
				}
				testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Minute))
			})
		})
	}
}

// A key that returns within the idle time uses its two records for all of its windows.
func TestRequestsOfReturningKeys(t *testing.T) {
	t.Run("uint8", func(t *testing.T) { testReturningKeys[uint8](t, time.Second) })
	t.Run("uint16", func(t *testing.T) { testReturningKeys[uint16](t, 200*time.Millisecond) })
	t.Run("uint32", func(t *testing.T) { testReturningKeys[uint32](t, time.Second) })
	t.Run("uint64", func(t *testing.T) { testReturningKeys[uint64](t, 10*time.Second) })
}

func testReturningKeys[T codec.Value](t *testing.T, scale time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		const keys, rounds = 50, 30
		var log history[T]
		srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(log.observe))
		limiter := testkit.Limiter[T](t, srv)
		cost := func() (inserts, requests int) {
			for i := range keys {
				k := log.of(modelKey{fmt.Sprint(i), scale})
				inserts, requests = inserts+k.inserts, requests+k.requests
			}
			return inserts, requests
		}
		var callers sync.WaitGroup
		round := func() {
			for i := range keys {
				callers.Go(func() {
					time.Sleep(rand.N(scale / 2))
					testkit.Hits(t, limiter, 1, fmt.Sprint(i), scale, 5)
				})
			}
			callers.Wait()
			time.Sleep(scale + rand.N(15*time.Second))
		}
		round()
		round()
		inserts, before := cost()
		require.Equal(t, 2*keys, inserts, "each key has two records")
		for range rounds {
			round()
		}
		inserts, after := cost()
		require.Equal(t, 2*keys, inserts)
		sweeps := (after - before) - 7*keys*rounds // the sweeper looks at the records, too
		t.Logf("%.2f requests for each window, %d of %d for sweeps", float64(after-before)/(keys*rounds), sweeps, after-before)
		require.LessOrEqual(t, after-before, 8*keys*rounds)
		for i := range keys {
			require.Len(t, log.windowsOf(modelKey{fmt.Sprint(i), scale}), rounds+2)
		}
		testkit.RequireRemoved(t, srv, testkit.Idle[T](t, scale))
	})
}
