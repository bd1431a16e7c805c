package throttr_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	windows "github.com/throttr-go/throttr/window"
)

func TestCloseRemovesTheRecordsOfWindowsThatAreOver(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithVirtualClock())
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
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
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		testkit.Hits(t, throttr.NewRateLimit(client.Backend()), 1, "k", time.Minute, 5)
		time.Sleep(time.Minute) // the window is over, and its record not yet due
		srv.Inject(mockserver.Fault{Drop: true})
		start := time.Now()
		require.NoError(t, client.Close())
		require.LessOrEqual(t, time.Since(start), time.Second) // less than Config.StallTimeout
		require.Len(t, srv.Keys(), 1)
	})
}

func TestDeleteTellsHowManyWindowsItHasEnded(t *testing.T) {
	srv := mockserver.RunT(t)
	limiter := throttr.NewRateLimit(testkit.Connect[uint16](t, srv, throttr.Config{}).Backend())
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

// A removal that is under way when the client is closed is brought to its end.
func TestCloseWaitsForARemovalThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		limiter := throttr.NewRateLimit(client.Backend())
		for i := range 100 {
			testkit.Hits(t, limiter, 1, fmt.Sprint(i), time.Second, 5)
		}
		srv.Inject(mockserver.Fault{Delay: 50 * time.Millisecond})
		time.Sleep(2020 * time.Millisecond) // they are due, and have been looked at
		require.Len(t, srv.Keys(), 100)
		require.NoError(t, client.Close())
		require.Empty(t, srv.Keys())
	})
}

func TestCloseRemovesWhatCouldNotBeRemovedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{})))
		limiter := throttr.NewRateLimit(client.Backend())
		testkit.Hits(t, limiter, 1, "k", 100*time.Millisecond, 5)
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true, Times: 1})
		time.Sleep(210 * time.Millisecond)
		require.Len(t, srv.Keys(), 1, "the server has cut the removal")
		require.NoError(t, client.Close())
		require.Empty(t, srv.Keys())
	})
}

// However many records there are to remove, and however slow the server, Close ends.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		limiter := throttr.NewRateLimit(client.Backend())
		const keys = 3000
		for i := range keys {
			testkit.Hits(t, limiter, 1, fmt.Sprint(i), time.Minute, 5)
		}
		time.Sleep(time.Minute) // over, but not yet due
		remove := srv.Inject(mockserver.Fault{Delay: 90 * time.Millisecond})
		defer remove()
		start := time.Now()
		require.NoError(t, client.Close())
		require.LessOrEqual(t, time.Since(start), time.Second)
		require.Less(t, len(srv.Keys()), keys-5*256, "it has removed what it could")
		require.NotEmpty(t, srv.Keys())
	})
}

func TestCloseAmongHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, algorithm := range []windows.Algorithm{windows.PerKey, windows.Aligned} {
			srv := testkit.InMemory(t)
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
			backend := client.Backend(throttr.WithAlgorithm(algorithm))
			limiter := throttr.NewRateLimit(backend)
			srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			var callers sync.WaitGroup
			for g := range 50 {
				callers.Go(func() {
					for i := 0; ; i++ {
						_, err := limiter.Hit(t.Context(), fmt.Sprint(g%5, i/100), 100*time.Millisecond, 20)
						if err != nil {
							if !errors.Is(err, throttr.ErrClosed) {
								t.Errorf("Hit: %v", err)
							}
							return
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			time.Sleep(1500 * time.Millisecond)
			start := time.Now()
			require.NoError(t, client.Close())
			require.LessOrEqual(t, time.Since(start), time.Second)
			callers.Wait()
			names := len(srv.Keys())
			require.LessOrEqual(t, names, 20, "no more than those of windows that others may still use")
			require.LessOrEqual(t, backend.Stats().Records, names)
		}
	})
}

func TestAfterCloseNobodyIsToldAnything(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithVirtualClock())
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	limiter := throttr.NewRateLimit(client.Backend(throttr.WithClock(srv.Now)))
	for range 3 { // the window is known to be full
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 1)
		require.NoError(t, err)
	}
	require.NoError(t, client.Close())
	_, err := limiter.Hit(t.Context(), "k", time.Minute, 1)
	require.ErrorIs(t, err, throttr.ErrClosed)
	require.True(t, throttr.SafeToRetry(err))
}
