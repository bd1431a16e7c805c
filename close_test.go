package throttr_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/mockserver"
)

func TestCloseRemovesTheRecordsOfWindowsThatAreOver(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithVirtualClock())
	client := connect[uint16](t, srv, throttr.Config{})
	limiter := throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now)))
	for i := range 1000 {
		_, err := limiter.Hit(t.Context(), fmt.Sprint(i), time.Minute, 5)
		require.NoError(t, err)
	}
	_, err := limiter.Hit(t.Context(), "active", time.Hour, 5)
	require.NoError(t, err)
	srv.Advance(time.Minute) // over, but not yet due
	require.Len(t, srv.Keys(), 1001)
	require.NoError(t, client.Close())
	require.Len(t, srv.Keys(), 1, "only that of the active window is left")
	require.Zero(t, srv.Expired())
}

func TestCloseDoesNotWaitForAServerThatIsSilent(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithVirtualClock())
	client := connect[uint16](t, srv, throttr.Config{})
	limiter := throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now)))
	_, err := limiter.Hit(t.Context(), "k", time.Minute, 5)
	require.NoError(t, err)
	srv.Advance(time.Minute)
	srv.Inject(mockserver.Fault{Drop: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		client.Close()
	}()
	select {
	case <-done:
	case <-time.After(4 * time.Second): // less than Config.StallTimeout
		t.Fatal("Close waits for the server")
	}
}

func TestDeleteTellsHowManyWindowsItHasEnded(t *testing.T) {
	srv := mockserver.RunT(t)
	limiter := throttr.NewRateLimit(connect[uint16](t, srv, throttr.Config{}).Backend())
	for _, scale := range []time.Duration{time.Second, time.Minute, time.Hour} {
		_, err := limiter.Hit(t.Context(), "k", scale, 5)
		require.NoError(t, err)
	}
	n, err := limiter.Delete(t.Context(), "k", time.Minute, 2*time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = limiter.Delete(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = limiter.Delete(t.Context(), "k", 0)
	require.ErrorIs(t, err, throttr.ErrScale)
}
