package limiter_test

import (
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

// requests counts the requests that a server has executed.
type requests struct{ inserts, updates, queries, purges int }

func countRequests(srv *mockserver.Server) requests {
	return requests{srv.Requests(codec.OpInsert), srv.Requests(codec.OpUpdate), srv.Requests(codec.OpQuery), srv.Requests(codec.OpPurge)}
}

func (r requests) minus(other requests) requests {
	return requests{r.inserts - other.inserts, r.updates - other.updates, r.queries - other.queries, r.purges - other.purges}
}

//evidence:limits A window costs a server the requests that docs/operations.md names
func TestRequestsOfAWindow(t *testing.T) {
	hit := requests{updates: 1, queries: 1}
	removal := requests{queries: 1, purges: 1}
	for algorithm, opening := range map[window.Algorithm]requests{
		window.PerKey:  {inserts: 1, updates: 1, queries: 10},
		window.Aligned: {inserts: 1, updates: 1, queries: 2},
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
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
					before := countRequests(srv)
					step.do()
					require.Equal(t, step.want, countRequests(srv).minus(before), step.name)
				}
			})
		})
	}
}
