package limiter_test

import (
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
		window.PerKey:  {inserts: 1, updates: 1, queries: 10, parks: 1},
		window.Aligned: {inserts: 1, updates: 1, queries: 2, parks: 1},
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, count := countRequests(t, "k")
				client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{HealthInterval: time.Hour}))
				limiter := throttr.NewRateLimit(client.Backend(throttr.WithAlgorithm(algorithm)))
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
					if step.want == removal { // the sweeper also looks at the record, and parks the server
						got.queries, got.parks = min(got.queries, removal.queries), 0
					}
					require.Equal(t, step.want, got, step.name)
				}
			})
		})
	}
}
