package transport_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

const crowd = 10_000

// mostInFlight looks at the client's statistics again and again until the returned func
// is called, which returns the most requests that were in flight.
func mostInFlight[T codec.Value](client *throttr.Client[T], look <-chan struct{}) (stop func() int) {
	var most int
	var looking sync.WaitGroup
	looking.Go(func() {
		for range look {
			most = max(most, testkit.ServerStats(client).InFlight)
		}
	})
	return func() int {
		looking.Wait()
		return most
	}
}

// tenThousandAtOnce has 10,000 goroutines each make a counter of their own and read it.
func tenThousandAtOnce(t *testing.T, srv *mockserver.Server, client *throttr.Client[uint16]) (most int) {
	var callers sync.WaitGroup
	var wrong atomic.Int64
	look := make(chan struct{}, crowd)
	stop := mostInFlight(client, look)
	for i := range crowd {
		callers.Go(func() {
			key, quota := fmt.Sprint("user:", i), uint16(i)
			ok, err := client.Insert(t.Context(), key, quota, testkit.Minute)
			if err != nil || !ok {
				t.Errorf("insert %s: %v %v", key, ok, err)
				wrong.Add(1)
			}
			look <- struct{}{}
			c, ok, err := client.Query(t.Context(), key)
			if err != nil || !ok || c.Quota != quota || c.TTL.Unit != codec.Seconds {
				t.Errorf("query %s: %v %v %v", key, c, ok, err)
				wrong.Add(1)
			}
		})
	}
	callers.Wait()
	close(look)
	require.Zero(t, wrong.Load())
	require.Equal(t, crowd, srv.Requests(codec.OpQuery))
	s := testkit.ServerStats(client)
	require.EqualValues(t, 2*crowd, s.Answered)
	require.Zero(t, s.InFlight+s.Waiting)
	require.EqualValues(t, 1, s.Dials)
	return stop()
}

var crowded = throttr.Config{MaxConns: 1, MaxInFlight: 512}

func TestTenThousandCallersShareOneConnectionOverTCP(t *testing.T) {
	srv := mockserver.RunT(t)
	most := tenThousandAtOnce(t, srv, testkit.Connect[uint16](t, srv, crowded))
	require.LessOrEqual(t, most, 512)
}

func TestTenThousandCallersShareOneConnectionInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		most := tenThousandAtOnce(t, srv, testkit.Connect[uint16](t, srv, testkit.Over(srv, crowded)))
		require.LessOrEqual(t, most, 512)
	})
}

// Where responses wait, all that is in flight is outstanding: the mock server reports a
// violation beyond 1024 (H4).
func TestNoMoreIsInFlightThanAllowedWhereTheServerIsSlow(t *testing.T) {
	for _, allowed := range []int{1, 512, 1023} {
		t.Run(fmt.Sprint(allowed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
				srv.Inject(mockserver.Fault{Delay: time.Millisecond})
				client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: allowed}))
				most := tenThousandAtOnce(t, srv, client)
				require.LessOrEqual(t, most, allowed)
				require.Greater(t, 2*most, allowed, "in flight at once")
			})
		})
	}
}

func TestNoMoreIsInFlightThanAllowedOverASlowSocket(t *testing.T) {
	srv := mockserver.RunT(t)
	srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	most := tenThousandAtOnce(t, srv, testkit.Connect[uint16](t, srv, crowded))
	require.LessOrEqual(t, most, 512)
}
