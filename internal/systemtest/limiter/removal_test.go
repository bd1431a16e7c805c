package limiter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

func TestRecordsAreRemovedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		l := testkit.Limiter[uint8](t, srv)
		for i := range 600 {
			testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 5)
		}
		time.Sleep(time.Minute)
		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(150 * time.Second) // the margin of a record is 195 s
		require.Len(t, testkit.Keys(srv), 600)
		srv.Refuse(false)
		requireRemoved(t, srv, 10*time.Second)
	})
}

// The server has become so far away, or takes so few requests at a time, that the records of many keys are removed in
// more calls than fit one guard.
func TestRecordsOfManyKeysAreRemovedFromServersFarAway(t *testing.T) {
	for _, test := range []struct {
		keys        int
		scale, away time.Duration
		maxInFlight int
	}{
		{3000, time.Second, 140 * time.Millisecond, 0},
		{3000, 2 * time.Second, 140 * time.Millisecond, 0},
		{400, time.Second, 20 * time.Millisecond, 1},
		{400, 10 * time.Second, 20 * time.Millisecond, 1},
	} {
		if race.Enabled {
			test.keys /= 4
		}
		testkit.Bubble(t, fmt.Sprint(test), func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithRealCollector())
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
				MaxInFlight: test.maxInFlight, Parking: throttr.ParkingNever,
			}))
			l := testkit.NewRateLimit(client.Backend())
			for range 2 { // so that each key has two records
				for i := range test.keys {
					testkit.Hits(t, l, 1, fmt.Sprint(i), test.scale, 1)
				}
				time.Sleep(test.scale)
			}
			srv.Inject(mockserver.Fault{Delay: test.away})
			requireRemoved(t, srv, idle[uint16](t, test.scale)+30*time.Second)
		})
	}
}

// requireRemoved lets time pass in a bubble until all windows are over, and fails the test if a
// record is left or has expired.
func requireRemoved(t *testing.T, srv *mockserver.Server, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if left, expired := testkit.Keys(srv), srv.Expired(); len(left) > 0 || expired > 0 {
		t.Fatalf("records were not removed: %q; %d expired on the server", left, expired)
	}
}

// idle returns how long after a hit the records of a key are removed, if the hit is its last and
// servers respond.
func idle[T codec.Value](t testing.TB, scale time.Duration) time.Duration {
	t.Helper()
	b, ok := slot.BandsFor(scale, uint64(^T(0)))
	if !ok {
		t.Fatalf("%v has no bands", scale)
	}
	return time.Duration(b.Top-b.Doom+1)*b.Unit + 10*b.Guard
}

func TestMemoryOfABackendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxWindows = 128
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithMaxWindows(maxWindows))
		l := testkit.NewRateLimit(backend)
		for i := range 4 * maxWindows {
			require.Equal(t, 1, testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 2))
			require.LessOrEqual(t, backend.Stats().Windows, 5*maxWindows)
		}
		require.Equal(t, 4*maxWindows, backend.Records().Records)
		_, err := l.Hit(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		require.NotErrorIs(t, err, throttr.ErrOverloaded)
		require.True(t, testkit.SafeToRetry(err))
		_, err = l.Set(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		for i := range 4 * maxWindows { // forgotten windows keep their counts, on the server
			require.Equal(t, 1, testkit.Hits(t, l, 2, fmt.Sprint(i), time.Minute, 2))
		}
		_, err = l.Get(t.Context(), "read only", time.Minute)
		require.NoError(t, err)
		requireRemoved(t, srv, idle[uint16](t, time.Minute))
		require.Zero(t, backend.Records().Records)
		require.LessOrEqual(t, backend.Stats().Windows, maxWindows)
		require.Equal(t, 1, testkit.Hits(t, l, 1, "one more", time.Minute, 2))
	})
}
