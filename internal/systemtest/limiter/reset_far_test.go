package limiter_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// Clients that are nearer to the server open another window as soon as one is ended. A Reset does
// not end that, too.
func TestResetEndsOneWindowOfAHotKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = 10 * time.Minute, 60000
		srv := testkit.InMemory(t)
		at := func(trip time.Duration) *throttr.RateLimit {
			client := testkit.Connect[uint16](t, srv, throttr.Config{Dial: testkit.Far(srv, trip).Dial})
			return testkit.NewRateLimit(client.Backend())
		}
		near, far := at(time.Millisecond), at(20*time.Millisecond)
		testkit.Hits(t, near, 1, "k", scale, limit)
		var hitting sync.WaitGroup
		stop := make(chan struct{})
		opened := 0
		hitting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := near.Hit(t.Context(), "k", scale, limit)
				if err != nil {
					t.Errorf("Hit: %v", err)
					return
				}
				if res.Count == 1 {
					opened++
				}
			}
		})
		before := time.Now()
		require.NoError(t, far.Reset(t.Context(), "k", scale))
		require.Less(t, time.Since(before), 2*time.Second, "a guard, and some round trips")
		close(stop)
		hitting.Wait()
		require.LessOrEqual(t, opened, 1)
	})
}
