package limiter_test

import (
	"strings"
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
// hit in it, and for the removal of its record, on a server that is not parked and on one
// that is.
func TestWhatAWindowCostsAServer(t *testing.T) {
	type cost struct{ inserts, updates, queries, purges int }
	type run struct {
		algorithm window.Algorithm
		parking   throttr.Parking
	}
	for r, want := range map[run][3]cost{
		{window.PerKey, throttr.ParkingNever}:   {{inserts: 1, updates: 1, queries: 10}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
		{window.PerKey, throttr.ParkingAlways}:  {{inserts: 1, updates: 2, queries: 10}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
		{window.Aligned, throttr.ParkingNever}:  {{inserts: 1, updates: 1, queries: 2}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
		{window.Aligned, throttr.ParkingAlways}: {{inserts: 1, updates: 2, queries: 2}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var spent cost
			srv := testkit.InMemory(t, mockserver.WithObserver(func(e mockserver.Exec) {
				if parks := e.Op == codec.OpUpdate && e.Key == ""; !parks && !strings.HasSuffix(e.Key, ":k") {
					return // of a probe, or of the sweeper
				}
				switch e.Op {
				case codec.OpInsert:
					spent.inserts++
				case codec.OpUpdate:
					spent.updates++
				case codec.OpQuery:
					spent.queries++
				case codec.OpPurge:
					spent.purges++
				}
			}))
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{HealthInterval: time.Hour, Parking: r.parking}))
			limiter := throttr.NewRateLimit(client.Backend(throttr.WithAlgorithm(r.algorithm)))
			time.Sleep(time.Second) // the sweeper looks for the first time
			since := func() cost {
				defer func() { spent = cost{} }()
				return spent
			}
			since() // the probe
			testkit.Hits(t, limiter, 1, "k", time.Minute, 10)
			require.Equal(t, want[0], since(), "%v: opened", r)
			testkit.Hits(t, limiter, 1, "k", time.Minute, 10)
			require.Equal(t, want[1], since(), "%v: known", r)
			time.Sleep(5 * time.Minute)
			removed := since()
			removed.updates = 0                  // those of the sweeper, which keep the server parked
			require.Positive(t, removed.queries) // the sweeper looks at the record, too
			removed.queries = 1
			require.Equal(t, want[2], removed, "%v: removed", r)
		})
	}
}
