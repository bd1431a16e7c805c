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

// TestWhatAWindowCostsAServer counts the requests for a window that is opened, for another
// hit in it, and for the removal of its record. Those of the sweeper do not count.
func TestWhatAWindowCostsAServer(t *testing.T) {
	type cost struct{ inserts, updates, queries, purges, parks int }
	for algorithm, want := range map[window.Algorithm][3]cost{
		window.PerKey:  {{inserts: 1, updates: 1, queries: 10, parks: 1}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
		window.Aligned: {{inserts: 1, updates: 1, queries: 2, parks: 1}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards now
			var now cost
			srv := testkit.InMemory(t, mockserver.WithObserver(func(x mockserver.Exec) {
				mu.Lock()
				defer mu.Unlock()
				switch window := strings.HasSuffix(x.Key, ":k"); {
				case window && x.Op == codec.OpInsert:
					now.inserts++
				case window && x.Op == codec.OpUpdate:
					now.updates++
				case window && x.Op == codec.OpQuery:
					now.queries++
				case window && x.Op == codec.OpPurge:
					now.purges++
				case x.Key == "" && x.Op == codec.OpUpdate:
					now.parks++
				}
			}))
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{HealthInterval: time.Hour}))
			limiter := throttr.NewRateLimit(client.Backend(throttr.WithAlgorithm(algorithm)))
			since := func() cost {
				mu.Lock()
				defer mu.Unlock()
				d := now
				now = cost{}
				return d
			}
			testkit.Hits(t, limiter, 1, "k", time.Minute, 10)
			require.Equal(t, want[0], since(), "%v: opened", algorithm)
			testkit.Hits(t, limiter, 1, "k", time.Minute, 10)
			require.Equal(t, want[1], since(), "%v: known", algorithm)
			time.Sleep(5 * time.Minute)
			removed := since()
			removed.queries, removed.parks = min(removed.queries, 1), 0 // others are the sweeper's
			require.Equal(t, want[2], removed, "%v: removed", algorithm)
		})
	}
}
