package throttr_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// lingeringConn takes a second to close.
type lingeringConn struct{ net.Conn }

func (c lingeringConn) Close() error {
	time.Sleep(time.Second)
	return c.Conn.Close()
}

// Each call to Close returns when the client has ended, not only the first.
func TestEveryCloseWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, throttr.Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return lingeringConn{nc}, err
		}})
		srv.Inject(mockserver.Fault{Delay: time.Hour})
		failed := testkit.Together(t, 50, func(int) error {
			if _, _, err := client.Query(t.Context(), "k"); !errors.Is(err, throttr.ErrClosed) {
				t.Error(err)
			}
			return nil
		})
		synctest.Wait()
		start := time.Now()
		testkit.Together(t, 5, func(int) error {
			err := client.Close()
			if time.Since(start) < time.Second {
				t.Error("Close has returned before the connections are closed")
			}
			return err
		})()
		failed()
		require.NoError(t, client.Close())
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.True(t, testkit.SafeToRetry(err))
		require.Zero(t, testkit.ServerStats(client).Conns)
	})
}
