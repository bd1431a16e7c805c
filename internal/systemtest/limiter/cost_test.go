package limiter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/window"
)

// TestWhatAWindowCostsAServer counts the requests for a window that is opened, for another
// hit in it, and for the removal of its record.
func TestWhatAWindowCostsAServer(t *testing.T) {
	type cost struct{ inserts, updates, queries, purges int }
	for algorithm, want := range map[window.Algorithm][3]cost{
		window.PerKey:  {{inserts: 1, updates: 1, queries: 10}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
		window.Aligned: {{inserts: 1, updates: 1, queries: 2}, {updates: 1, queries: 1}, {queries: 1, purges: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{HealthInterval: time.Hour}))
			limiter := throttr.NewRateLimit(client.Backend(throttr.WithAlgorithm(algorithm)))
			var before cost
			since := func() cost {
				now := cost{srv.Requests(codec.OpInsert), srv.Requests(codec.OpUpdate), srv.Requests(codec.OpQuery), srv.Requests(codec.OpPurge)}
				d := cost{now.inserts - before.inserts, now.updates - before.updates, now.queries - before.queries, now.purges - before.purges}
				before = now
				return d
			}
			since() // the probe
			testkit.Hits(t, limiter, 1, "k", time.Minute, 10)
			require.Equal(t, want[0], since(), "%v: opened", algorithm)
			testkit.Hits(t, limiter, 1, "k", time.Minute, 10)
			require.Equal(t, want[1], since(), "%v: known", algorithm)
			time.Sleep(5 * time.Minute)
			require.Equal(t, want[2], since(), "%v: removed", algorithm)
		})
	}
}
