package throttr_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// A server of another value size executes nothing but the probe.
func TestConnectRefusesAServerOfAnotherValueSize(t *testing.T) {
	for size := 1; size <= 8; size *= 2 {
		srv := mockserver.RunT(t, mockserver.WithValueSize(size))
		cfg := throttr.Config{Servers: []string{srv.Addr()}}
		for client, connect := range map[int]func() error{
			1: func() error { return connectAs[uint8](t, cfg) },
			2: func() error { return connectAs[uint16](t, cfg) },
			4: func() error { return connectAs[uint32](t, cfg) },
			8: func() error { return connectAs[uint64](t, cfg) },
		} {
			err := connect()
			if client == size {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.ErrorIs(t, err, throttr.ErrValueSizeMismatch)
			var mismatch *throttr.ValueSizeError
			require.ErrorAs(t, err, &mismatch)
			require.Equal(t, throttr.ValueSizeError{Server: srv.Addr(), Client: client, Actual: size}, *mismatch)
		}
		require.Empty(t, srv.Violations())
		require.Empty(t, srv.Keys(), "the probe leaves no record behind")
	}
}

// connectAs connects with values of type T, and closes the client.
func connectAs[T codec.Value](t *testing.T, cfg throttr.Config) error {
	client, err := throttr.Connect[T](t.Context(), cfg)
	if err == nil {
		client.Close()
	}
	return err
}

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
