package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// Frames of another size than the server's can crash it.
func TestNoClientConvertsToOneOfAnotherValueSize(t *testing.T) {
	for from, to := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[throttr.Client[uint32]]():       reflect.TypeFor[throttr.Client[uint8]](),
		reflect.TypeFor[throttr.Batch[uint32]]():        reflect.TypeFor[throttr.Batch[uint8]](),
		reflect.TypeFor[throttr.Reply[uint32]]():        reflect.TypeFor[throttr.Reply[uint8]](),
		reflect.TypeFor[throttr.CounterReply[uint32]](): reflect.TypeFor[throttr.CounterReply[uint8]](),
		reflect.TypeFor[throttr.BufferReply[uint32]]():  reflect.TypeFor[throttr.BufferReply[uint8]](),
	} {
		require.False(t, from.ConvertibleTo(to), from)
	}
}

func TestRequestThatCannotBeEncodedIsNotSent(t *testing.T) {
	srv, client := testkit.Start[uint8](t, throttr.Config{})
	ctx, long := t.Context(), string(make([]byte, 256))
	for range 3 { // a call that could not be encoded is used again
		errs := map[string]error{}
		_, _, errs["query"] = client.Query(ctx, long)
		_, _, errs["stat"] = client.Stat(ctx, long)
		_, _, errs["channel"] = client.Channel(ctx, long)
		_, errs["publish"] = client.Publish(ctx, long, nil)
		_, errs["payload"] = client.Publish(ctx, "c", make([]byte, 256))
		_, errs["set"] = client.Set(ctx, "k", make([]byte, 256), codec.TTL[uint8]{Amount: 1, Unit: codec.Minutes})
		for name, err := range errs {
			require.ErrorIs(t, err, codec.ErrTooLarge, name)
		}
		ok, err := client.Purge(ctx, long[:255])
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.Equal(t, 1, srv.Requests(codec.OpQuery), "that of the probe")
	require.Zero(t, srv.Requests(codec.OpStat)+srv.Requests(codec.OpChannel)+srv.Requests(codec.OpPublish)+srv.Requests(codec.OpSet))
}

// The caller may change a Config once a client has it.
func TestAClientKeepsItsServers(t *testing.T) {
	servers := testkit.Several(t, 2)
	cfg := servers.Over(throttr.Config{})
	client := testkit.Client[uint16](t, cfg)
	who, err := client.WhoAmI(t.Context())
	require.NoError(t, err)
	slices.Reverse(cfg.Servers)
	for _, c := range who {
		_, found, err := client.Connection(t.Context(), c.Server, c.ID)
		require.NoError(t, err)
		require.True(t, found)
	}
}

// If one of several servers can't be reached, the connections to the others are closed.
func TestFailedConnectLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble waits for all goroutines
		servers := testkit.Several(t, 2)
		servers[1].Refuse(true)
		_, err := throttr.Connect[uint16](t.Context(), servers.Over(throttr.Config{}))
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.ErrorContains(t, err, servers[1].Addr())
		synctest.Wait()
		require.Zero(t, servers[0].Conns())
	})
}

// lingeringConn takes a second to close.
type lingeringConn struct{ net.Conn }

func (c lingeringConn) Close() error {
	time.Sleep(time.Second)
	return c.Conn.Close()
}

// Each call to Close returns when the client has ended, not only the first.
func TestEveryCloseWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, throttr.Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return lingeringConn{nc}, err
		}})
		srv.Inject(mockserver.Fault{Delay: time.Hour})
		failed := testkit.Together(t, 50, func(int) error {
			if _, _, err := client.Query(t.Context(), "k"); !errors.Is(err, throttr.ErrClosed) {
				t.Error(err)
			}
			return nil
		})
		synctest.Wait()
		start := time.Now()
		testkit.Together(t, 5, func(int) error {
			err := client.Close()
			if time.Since(start) < time.Second {
				t.Error("Close has returned before the connections are closed")
			}
			return err
		})()
		failed()
		require.NoError(t, client.Close())
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.True(t, testkit.SafeToRetry(err))
		require.Zero(t, client.Stats().Servers[0].Conns)
	})
}

func TestCloseOfABackendRemovesItsEndedWindowsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, client := testkit.Start[uint16](t, throttr.Config{})
		backend, other := client.Backend(), client.Backend()
		limiter := throttr.NewRateLimit(backend)
		testkit.Hits(t, limiter, 1, "over", time.Second, 5)
		testkit.Hits(t, limiter, 1, "open", time.Minute, 5)
		time.Sleep(time.Second)
		require.Len(t, testkit.Keys(srv), 2)
		testkit.Together(t, 3, func(int) error {
			err := backend.Close()
			if n := len(testkit.Keys(srv)); n != 1 {
				t.Errorf("%d records after Close: only that of the open window must be left", n)
			}
			return err
		})()
		require.NoError(t, backend.Close())
		_, err := limiter.Hit(t.Context(), "open", time.Minute, 5)
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.True(t, testkit.SafeToRetry(err))

		require.Equal(t, 1, testkit.Hits(t, throttr.NewRateLimit(other), 1, "open", time.Minute, 5), "other backends go on")
		_, _, err = client.Query(t.Context(), "k")
		require.NoError(t, err, "and so does the client")
		require.NoError(t, client.Close())
		require.NoError(t, backend.Close())
		_, err = other.Hit(t.Context(), "open", throttr.Limit{Max: 5, Scale: time.Minute, Algorithm: throttr.FixedWindow}, 1)
		require.ErrorIs(t, err, throttr.ErrClosed)
	})
}

// A client is closed while one of its backends is. The backend needs the connections until it
// has removed its records.
func TestClientCloseWaitsForABackendThatCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, client := testkit.Start[uint16](t, throttr.Config{})
		backend := client.Backend()
		for i := range 100 {
			testkit.Hits(t, throttr.NewRateLimit(backend), 1, fmt.Sprint(i), time.Second, 5)
		}
		time.Sleep(time.Second)
		srv.Inject(mockserver.Fault{Delay: 50 * time.Millisecond})
		go backend.Close()
		synctest.Wait()
		require.Len(t, testkit.Keys(srv), 100, "Close has begun to remove them")
		require.NoError(t, client.Close())
		require.Empty(t, testkit.Keys(srv))
	})
}

// A closed backend leaves no goroutine, and its client no longer refers to it.
func TestClosedBackendIsFreed(t *testing.T) {
	_, client := testkit.Start[uint16](t, throttr.Config{})
	before := len(testkit.Stacks())
	freed := func() weak.Pointer[throttr.ServerBackend] {
		backend := client.Backend()
		testkit.Hits(t, throttr.NewRateLimit(backend), 1, "k", time.Minute, 5)
		require.Greater(t, len(testkit.Stacks()), before)
		require.NoError(t, backend.Close())
		return weak.Make(backend)
	}()
	require.Eventually(t, func() bool { return len(testkit.Stacks()) <= before }, 5*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		runtime.GC()
		return freed.Value() == nil
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, client.Close())
}

// On a server that is parked, nothing expires: a sweeper will remove what Close does not wait for.
func TestCloseWaitsForWindowsThatAreOverSoon(t *testing.T) {
	for parking, want := range map[throttr.Parking]time.Duration{
		throttr.ParkingNever: 2 * time.Second, throttr.ParkingAlways: 0, // the rest of the window, and two guards
	} {
		synctest.Test(t, func(t *testing.T) {
			srv, client := testkit.Start[uint16](t, throttr.Config{Parking: parking})
			limiter := throttr.NewRateLimit(client.Backend())
			testkit.Hits(t, limiter, 1, "long", time.Minute, 5)
			testkit.Hits(t, limiter, 1, "short", time.Second, 5)
			names := testkit.Keys(srv)
			long := names[slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, ":long") })]
			before, _ := srv.TTL(long)
			start := time.Now()
			require.NoError(t, client.Close())
			took := time.Since(start)
			require.Equal(t, want, took)
			require.Len(t, testkit.Keys(srv), map[bool]int{true: 2, false: 1}[want == 0], "the record of the long window remains")
			left, _ := srv.TTL(long)
			require.Equal(t, before-took, left, "it was not prolonged")
		})
	}
}

// However many records there are to remove, and however slow the server is, Close returns
// within 21 seconds.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 3000
		srv, client := testkit.Start[uint16](t, throttr.Config{})
		limiter := throttr.NewRateLimit(client.Backend())
		for i := range keys {
			testkit.Hits(t, limiter, 1, fmt.Sprint(i), time.Minute, 5)
		}
		time.Sleep(time.Minute) // the windows are over, and it is too early to remove their records
		remove := srv.Inject(mockserver.Fault{Delay: 90 * time.Millisecond})
		defer remove()
		start := time.Now()
		require.NoError(t, client.Close())
		require.LessOrEqual(t, time.Since(start), 21*time.Second)
		require.Empty(t, testkit.Keys(srv), "the server is slow, and was not asked for more than it can do")
	})
}
