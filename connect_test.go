package throttr_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// If one of several servers can't be reached, the connections to the others are closed.
func TestFailedConnectLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble waits for all goroutines
		srv := testkit.InMemory(t)
		_, err := throttr.Connect[uint16](t.Context(), throttr.Config{
			Servers: []string{"a:1", "b:1"},
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				if address == "b:1" {
					return nil, mockserver.ErrRefused
				}
				return srv.Dial(ctx)
			},
		})
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.ErrorContains(t, err, "b:1")
		synctest.Wait()
		require.Zero(t, srv.Conns())
	})
}

// The panic is in the goroutine of the caller, which can recover from it.
func TestNilContextPanics(t *testing.T) {
	var ctx context.Context
	require.PanicsWithValue(t, "throttr: Connect: ctx is nil", func() {
		throttr.Connect[uint16](ctx, throttr.Config{})
	})
}
