package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// newDoor returns a door on a mock server of its own, whose clock the test moves. The
// server fails the test if the client does what would harm a real one.
func newDoor(t *testing.T) (*door, *mockserver.Server) {
	t.Helper()
	srv := mockserver.RunT(t, mockserver.WithValueSize(2), mockserver.WithVirtualClock())
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{srv.Addr()}, MaxRetries: -1})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	// One clock for both: without WithClock, the limiter would go by the real one.
	return &door{limiter: throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now)))}, srv
}

func TestThreeAttemptsInAQuarterOfAnHour(t *testing.T) {
	door, srv := newDoor(t)
	for range attempts {
		require.ErrorIs(t, door.login(t.Context(), "alice", "guess"), errPassword)
		srv.Advance(time.Minute)
	}

	// The window has been open for three minutes, and even the right password is late.
	var locked *lockedError
	require.ErrorAs(t, door.login(t.Context(), "alice", "secret"), &locked)
	require.Equal(t, 12*time.Minute, locked.wait)
	require.ErrorIs(t, door.login(t.Context(), "bob", "guess"), errPassword, "another user has another window")

	srv.Advance(12*time.Minute - time.Second)
	require.ErrorAs(t, door.login(t.Context(), "alice", "secret"), &locked, "a second before the window's end")

	srv.Advance(time.Second)
	require.NoError(t, door.login(t.Context(), "alice", "secret"), "a new window")
}

func TestASuccessfulLoginGivesAllAttemptsBack(t *testing.T) {
	door, _ := newDoor(t)
	for range 2 {
		for range attempts - 1 {
			require.ErrorIs(t, door.login(t.Context(), "alice", "guess"), errPassword)
		}
		require.NoError(t, door.login(t.Context(), "alice", "secret"))
	}
}

func TestNobodyIsLetInWhileTheServerIsAway(t *testing.T) {
	door, srv := newDoor(t)
	defer srv.Inject(mockserver.Fault{Op: codec.OpInsert, Disconnect: true})()
	err := door.login(t.Context(), "alice", "secret")
	require.ErrorIs(t, err, throttr.ErrConnLost)
	require.False(t, throttr.SafeToRetry(err), "the hit may have been counted")
}
