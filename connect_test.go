package throttr_test

import (
	"context"
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
		servers := testkit.Several(t, 2)
		servers[1].Refuse(true)
		_, err := throttr.Connect[uint16](t.Context(), servers.Over(throttr.Config{}))
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.ErrorContains(t, err, servers[1].Addr())
		synctest.Wait()
		require.Zero(t, servers[0].Conns())
	})
}

// The panic is in the goroutine of the caller, which can recover from it.
func TestNilContextPanics(t *testing.T) {
	var ctx context.Context
	require.PanicsWithValue(t, "throttr: Connect: ctx is nil", func() {
		throttr.Connect[uint16](ctx, throttr.Config{})
	})
}
