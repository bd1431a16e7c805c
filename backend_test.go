package throttr_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestNilBackendOptionPanics(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	require.PanicsWithValue(t, "throttr: Client.Backend with a nil BackendOption", func() { client.Backend(nil) })
	require.PanicsWithValue(t, "throttr: WithClock: now is nil", func() { throttr.WithClock(nil) })
}

// ErrFull is about the records of a backend, and ErrOverloaded about what waits. Both
// hits were not counted.
//
//evidence:bounds Records that a backend has yet to remove
func TestErrFullIsNotErrOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxQueued: 10}))
		limiter := throttr.NewRateLimit(client.Backend(throttr.WithMaxWindows(1)), throttr.WithTimeout(time.Minute))
		for i := range 4 { // records of four windows may await removal
			testkit.Hits(t, limiter, 1, fmt.Sprint(i), time.Minute, 5)
		}
		_, err := limiter.Hit(t.Context(), "one more", time.Minute, 5)
		require.ErrorIs(t, err, throttr.ErrFull)
		require.NotErrorIs(t, err, throttr.ErrOverloaded)
		require.True(t, testkit.SafeToRetry(err))
		time.Sleep(3 * time.Minute) // the records are removed
		require.Equal(t, 1, testkit.Hits(t, limiter, 1, "one more", time.Minute, 5))

		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Delay: time.Second})
		errs := make(chan error)
		const hits = 1 + 10 + 1 // one hit is in flight, 10 wait, one is too many
		for range hits {
			go func() {
				_, err := limiter.Hit(t.Context(), "one more", time.Minute, 50)
				errs <- err
			}()
			synctest.Wait()
		}
		err = <-errs
		require.ErrorIs(t, err, throttr.ErrOverloaded)
		require.NotErrorIs(t, err, throttr.ErrFull)
		require.True(t, testkit.SafeToRetry(err))
		for range hits - 1 {
			require.NoError(t, <-errs)
		}
	})
}

// The lookup of a window fails here, which is a QUERY, although the call is a hit.
func TestErrorOfABackendNamesTheCallAndNoSingleRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		b := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{}))).Backend()
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true})
		_, err := b.Hit(t.Context(), "k", throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: throttr.FixedWindow}, 1)
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "hit", failed.Call)
		require.Equal(t, "k", failed.Key)
		require.Zero(t, failed.Op)
	})
}

func TestDeleteReturnsHowManyWindowsItEnded(t *testing.T) {
	srv := mockserver.RunT(t)
	limiter := throttr.NewRateLimit(testkit.Connect[uint16](t, srv, throttr.Config{}).Backend())
	for _, scale := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
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
