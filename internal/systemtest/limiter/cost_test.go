package limiter_test

import (
	"fmt"
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
	"github.com/throttr-go/throttr/window"
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

//evidence:limits A window costs a server the requests that docs/operations.md names
func TestRequestsOfAWindow(t *testing.T) {
	hit := requests{updates: 1, queries: 1}
	removal := requests{queries: 1, purges: 1}
	for algorithm, opening := range map[window.Algorithm]requests{
		window.PerKey:  {inserts: 1, updates: 1, queries: 10},
		window.Aligned: {inserts: 1, updates: 1, queries: 2},
	} {
		for parking, parks := range map[throttr.Parking]int{throttr.ParkingNever: 0, throttr.ParkingAutomatic: 1, throttr.ParkingAlways: 1} {
			t.Run(fmt.Sprintf("%v/parking %v", algorithm, parking), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv, count := countRequests(t, "k")
					cfg := throttr.Config{HealthInterval: time.Hour, Parking: parking}
					limiter := throttr.NewRateLimit(testkit.Connect[uint16](t, srv, testkit.Over(srv, cfg)).Backend(throttr.WithAlgorithm(algorithm)))
					time.Sleep(time.Second) // for the sweeper, which may park the server
					count()
					opening.parks = parks
					for _, step := range []struct {
						name string
						do   func()
						want requests
					}{
						{"first hit", func() { testkit.Hits(t, limiter, 1, "k", time.Minute, 10) }, opening},
						{"second hit", func() { testkit.Hits(t, limiter, 1, "k", time.Minute, 10) }, hit},
						{"removal", func() { time.Sleep(5 * time.Minute) }, removal},
					} {
						step.do()
						got := count()
						if step.want == removal { // the sweeper also looks at the record, and keeps the server parked
							got.queries, got.parks = min(got.queries, removal.queries), 0
						}
						require.Equal(t, step.want, got, step.name)
					}
				})
			})
		}
	}
}
