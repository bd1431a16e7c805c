package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// newAuth returns an auth with a mock server of its own, whose clock the test moves. The server
// fails the test if a request would have harmed a real server.
func newAuth(t *testing.T) (*auth, *mockserver.Server) {
	t.Helper()
	srv := mockserver.RunT(t, mockserver.WithValueSize(2), mockserver.WithVirtualClock())
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{srv.Addr()}, MaxRetries: -1})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	// The rate limit needs the clock of the server. Without WithClock, it would use the real time.
	return &auth{limiter: throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now)))}, srv
}

func TestFourthAttemptIn15MinutesIsRejected(t *testing.T) {
	auth, srv := newAuth(t)
	for range attempts {
		require.ErrorIs(t, auth.login(t.Context(), "alice", "guess"), errPassword)
		srv.Advance(time.Minute)
	}

	// The window has been open for 3 minutes. Even the right password is rejected.
	var locked *lockedError
	require.ErrorAs(t, auth.login(t.Context(), "alice", "secret"), &locked)
	require.Equal(t, 12*time.Minute, locked.retryAfter)
	require.ErrorIs(t, auth.login(t.Context(), "bob", "guess"), errPassword, "another user has another window")

	srv.Advance(12*time.Minute - time.Second)
	require.ErrorAs(t, auth.login(t.Context(), "alice", "secret"), &locked, "a second before the end of the window")

	srv.Advance(time.Second)
	require.NoError(t, auth.login(t.Context(), "alice", "secret"), "a new window")
}

// A Reset takes a second of real time, whatever clock the server has.
func TestSuccessfulLoginResetsAttempts(t *testing.T) {
	auth, _ := newAuth(t)
	for range 2 {
		for range attempts - 1 {
			require.ErrorIs(t, auth.login(t.Context(), "alice", "guess"), errPassword)
		}
		require.NoError(t, auth.login(t.Context(), "alice", "secret"))
	}
}

func TestLoginFailsIfServerDisconnects(t *testing.T) {
	auth, srv := newAuth(t)
	require.ErrorIs(t, auth.login(t.Context(), "alice", "guess"), errPassword)
	defer srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Disconnect: true})() // a hit is an UPDATE and a QUERY
	err := auth.login(t.Context(), "alice", "secret")
	require.ErrorIs(t, err, throttr.ErrConnLost)
	var failed *throttr.RequestError
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.SafeToRetry(), "the hit may have been counted")
}

func Example() {
	main()
	// Output:
	// wrong password: wrong password
	// wrong password: wrong password
	// wrong password: wrong password
	// wrong password: too many attempts, retry after 15m0s
	// 15m0s later: <nil>
}
