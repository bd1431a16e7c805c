package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// insert creates a record.
func (s subject) insert(t *testing.T, key string, quota uint16) {
	t.Helper()
	r := s.do(t.Context(), codec.Insert[uint16]{Key: []byte(key), Quota: quota, TTL: codec.TTL[uint16]{Amount: 60, Unit: codec.Seconds}})
	if r.err != nil || !r.response.OK {
		t.Errorf("INSERT %s: %+v", key, r)
	}
}

func TestCallsThatCreateRecordsKeepTheServerParked(t *testing.T) {
	for name, c := range map[string]struct {
		mode    parking.Mode
		hold    bool
		parked  bool // before the pool connects
		updates int
	}{
		"not parked":                   {parking.Automatic, false, false, 0},
		"not parked, held":             {parking.Automatic, true, false, 1},
		"parked":                       {parking.Automatic, false, true, 1},
		"parked, held":                 {parking.Automatic, true, true, 1},
		"parking is off":               {parking.Never, true, false, 0},
		"parking is off, and parked":   {parking.Never, true, true, 1},
		"always":                       {parking.Always, false, false, 1},
		"always, parked and also held": {parking.Always, true, true, 1},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			if c.parked {
				connect(t, to(srv), pool.Options{Parking: parking.Always})
			}
			s := connect(t, to(srv), pool.Options{Parking: c.mode})
			if c.hold {
				s.KeepParked()
			}
			before := srv.Requests(codec.OpUpdate)
			s.insert(t, "k", 0)
			require.Equal(t, c.updates, srv.Requests(codec.OpUpdate)-before)
			require.True(t, s.do(t.Context(), codec.Set[uint16]{Key: []byte("buffer"), TTL: codec.TTL[uint16]{Amount: 1, Unit: codec.Hours}}).response.OK)
			require.Equal(t, 2*c.updates, srv.Requests(codec.OpUpdate)-before)
			s.query(t.Context(), "k")
			s.purge(t.Context(), "k")
			require.Equal(t, 2*c.updates, srv.Requests(codec.OpUpdate)-before)
			if c.mode == parking.Never {
				require.NoError(t, s.Park(t.Context()))
				require.Equal(t, c.parked, s.Parked())
			}
		})
	}
}

// What has become of the parking record is seen in time, also by a pool that does not park the server.
func TestAServerThatIsNotParkedAnyMore(t *testing.T) {
	for name, change := range map[string]func(srv *mockserver.Server){
		"the record is gone":      func(srv *mockserver.Server) { srv.Delete("") },
		"it is somebody's record": func(srv *mockserver.Server) { srv.Set("", 1, time.Hour) },
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			first := connect(t, to(srv), pool.Options{})
			require.False(t, first.Parked())
			require.NoError(t, first.Park(t.Context()))
			require.True(t, first.Parked())
			require.True(t, first.Stats().Parked)
			require.Equal(t, []string{""}, srv.Keys())
			first.Close()
			s := connect(t, to(srv), pool.Options{})
			require.True(t, s.Parked())
			change(srv)
			time.Sleep(time.Minute) // health checks
			require.False(t, s.Parked())
		})
	}
}

// A caller that leaves while its connection is made may leave the server's timer as the probe has set it. Nobody knows
// that the server is parked but for this probe.
func TestAServerIsKeptParkedAfterAConnectionThatWasNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{})
		connect(t, to(srv), pool.Options{Parking: parking.Always})
		synctest.Wait()
		before := srv.Requests(codec.OpUpdate)
		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Drop: true, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Dedicated(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, before+2, srv.Requests(codec.OpUpdate), "again by way of the shared connection")
	})
}

// The pool looks for the parking record and pings at the same time: with few requests in flight, an idle pool would grow.
func TestNoConnectionIsMadeToKeepAServerParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{MaxInFlight: 1})
		srv.Inject(mockserver.Fault{Key: "slow", Delay: time.Second})
		wait := s.start(1, func(int) { s.query(t.Context(), "slow") })
		synctest.Wait()
		require.NoError(t, s.Park(t.Context()))
		wait()
		require.EqualValues(t, 1, s.Stats().Dials)
	})
}
