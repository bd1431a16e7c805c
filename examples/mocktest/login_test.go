package main

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// inBubble runs a test of an auth with a mock server of its own, in a bubble of testing/synctest: both go by the
// clock of the bubble, which moves when everybody sleeps. The server fails the test if a request would have harmed
// a real one.
func inBubble(t *testing.T, test func(t *testing.T, a *auth, srv *mockserver.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.RunT(t, mockserver.WithValueSize(2), mockserver.WithAddr("memory", "mock:1"))
		client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
			Dial:       func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
			MaxRetries: -1,
		})
		require.NoError(t, err)
		defer client.Close()
		test(t, &auth{limiter: throttr.NewRateLimit(client.Backend())}, srv)
	})
}

func TestFourthAttemptIn15MinutesIsRejected(t *testing.T) {
	inBubble(t, func(t *testing.T, auth *auth, _ *mockserver.Server) {
		for range attempts {
			require.ErrorIs(t, auth.login(t.Context(), "alice", "guess"), errPassword)
			time.Sleep(time.Minute)
		}

		// The window has been open for 3 minutes. Even the right password is rejected.
		var locked *lockedError
		require.ErrorAs(t, auth.login(t.Context(), "alice", "secret"), &locked)
		require.Equal(t, 12*time.Minute, locked.retryAfter)
		require.ErrorIs(t, auth.login(t.Context(), "bob", "guess"), errPassword, "another user has another window")

		time.Sleep(12*time.Minute - time.Second)
		require.ErrorAs(t, auth.login(t.Context(), "alice", "secret"), &locked, "a second before the end of the window")

		time.Sleep(time.Second)
		require.NoError(t, auth.login(t.Context(), "alice", "secret"), "a new window")
	})
}

func TestSuccessfulLoginResetsAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, auth *auth, _ *mockserver.Server) {
		for range 2 {
			for range attempts - 1 {
				require.ErrorIs(t, auth.login(t.Context(), "alice", "guess"), errPassword)
			}
			require.NoError(t, auth.login(t.Context(), "alice", "secret"))
		}
	})
}

func TestLoginFailsIfServerDisconnects(t *testing.T) {
	inBubble(t, func(t *testing.T, auth *auth, srv *mockserver.Server) {
		require.ErrorIs(t, auth.login(t.Context(), "alice", "guess"), errPassword)
		defer srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Disconnect: true})() // a hit is an UPDATE and a QUERY
		err := auth.login(t.Context(), "alice", "secret")
		require.ErrorIs(t, err, throttr.ErrConnLost)
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed)
		require.False(t, failed.SafeToRetry(), "the hit may have been counted")
	})
}

func Example() {
	main()
	// Output:
	// wrong password: wrong password
	// wrong password: wrong password
	// wrong password: wrong password
	// wrong password: too many attempts, retry after 15m0s
}
