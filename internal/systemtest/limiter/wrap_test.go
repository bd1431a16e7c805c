package limiter_test

import (
	"context"
	"net"
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

func TestSixtyFourClientsAtOnceDoNotWrapAByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, each, limit = 64, 16, 191
		srv := mockserver.RunT(t, mockserver.WithValueSize(1), mockserver.WithAddr("memory", "wrap:1"))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) }
		var hits sync.WaitGroup
		var allowed atomic.Int64
		limiters := make([]*throttr.RateLimit, clients)
		hit := func(l *throttr.RateLimit) {
			res, err := l.Hit(t.Context(), "k", time.Minute, limit)
			if err != nil {
				t.Errorf("hit: %v", err)
			}
			if res.Allowed {
				allowed.Add(1)
			}
		}
		for i := range limiters {
			limiters[i] = throttr.NewRateLimit(testkit.Connect[uint8](t, srv, throttr.Config{Dial: dial}).Backend())
			hit(limiters[i]) // so that all know the window
		}
		for range 20 {
			for _, l := range limiters {
				for range each {
					hits.Go(func() { hit(l) })
				}
			}
			hits.Wait()
		}
		require.EqualValues(t, limit, allowed.Load())
		count, ok := srv.Counter(testkit.Keys(srv)[0])
		require.True(t, ok)
		require.Greater(t, count, uint64(limit), "the counter has wrapped")
	})
}
