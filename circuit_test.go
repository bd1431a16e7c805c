package throttr_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/mockserver"
)

func TestAServerThatIsDownIsLeftAloneForAGrowingPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := behindGate(t, throttr.Config{RetryPause: 100 * time.Millisecond, MaxRetryPause: 2 * time.Second})
		g.fail.Store(true)
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, errGate, "the first caller finds out")
		require.NotErrorIs(t, err, throttr.ErrUnavailable)
		dials := statsOf(client).Dials

		start := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				for range 100 {
					_, err := client.Purge(t.Context(), "k")
					if !throttr.SafeToRetry(err) {
						t.Errorf("PURGE: %v", err)
					}
				}
			})
		}
		callers.Wait()
		require.Zero(t, time.Since(start), "nobody else waits")
		require.Equal(t, dials, statsOf(client).Dials, "and nobody else tries")
		_, err = client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.ErrorIs(t, err, errGate)

		pass(20 * time.Second)
		tries := statsOf(client).Dials - dials
		require.GreaterOrEqual(t, tries, uint64(4+7), "0.1, 0.3, 0.7, 1.5 s, then every 2 s")
		require.LessOrEqual(t, tries, uint64(4+12))

		g.fail.Store(false)
		pass(2200 * time.Millisecond)
		_, err = client.Purge(t.Context(), "k")
		require.NoError(t, err, "the client has tried again by itself")
	})
}

func TestAServerThatIsDownDoesNotAffectTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := map[string]*mockserver.Server{}
		cfg := throttr.Config{Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			return servers[address].Dial(ctx)
		}}
		for i := range 3 {
			address := fmt.Sprintf("server:%d", i)
			servers[address] = mockserver.RunT(t, mockserver.WithAddr("memory", address))
			cfg.Servers = append(cfg.Servers, address)
		}
		client, err := throttr.Connect[uint16](t.Context(), cfg)
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, servers["server:1"].Close())
		failed := map[string]int{}
		for i := range 300 {
			_, err := client.Purge(t.Context(), fmt.Sprint(i))
			if err != nil {
				var re *throttr.RequestError
				require.ErrorAs(t, err, &re)
				failed[re.Server]++
			}
		}
		require.Len(t, failed, 1)
		require.Greater(t, failed["server:1"], 50)
	})
}
