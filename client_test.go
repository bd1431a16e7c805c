package throttr_test

import (
	"context"
	"encoding/json"
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

func TestParkingIsTextInJSON(t *testing.T) {
	settings := struct{ Parking throttr.Parking }{throttr.ParkingNever}
	b, err := json.Marshal(settings)
	require.NoError(t, err)
	require.JSONEq(t, `{"Parking": "never"}`, string(b))
	require.NoError(t, json.Unmarshal([]byte(`{"Parking": "always"}`), &settings))
	require.Equal(t, throttr.ParkingAlways, settings.Parking)
	_, err = json.Marshal(throttr.Parking(9))
	require.ErrorIs(t, err, throttr.ErrConfig)
	require.Equal(t, "parking 9", throttr.Parking(9).String())
	_, err = throttr.Connect[uint16](t.Context(), throttr.Config{Parking: 9})
	require.ErrorIs(t, err, throttr.ErrConfig)
}

// said returns the level, message and server of the lines since the last call.
func (j *journal) said(t *testing.T) (all []string) {
	for _, line := range j.entries(t) {
		all = append(all, fmt.Sprint(line["level"], " ", line["msg"], " ", line["server"]))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines.Reset()
	return all
}

const parkedLine = "INFO throttr: server is parked: no record expires there memory:1"

func TestLoggerIsToldWhatHappensToServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := mockserver.Start(mockserver.WithAddr("memory", "memory:1"), mockserver.WithRealCollector())
		require.NoError(t, err)
		defer srv.Close()
		log := &journal{}
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Logger: log.logger()}))
		limiter := throttr.NewRateLimit(client.Backend())
		testkit.Hits(t, limiter, 1, "k", time.Second, 5)
		require.Equal(t, []string{parkedLine}, log.said(t))
		testkit.Hits(t, limiter, 1, "k", time.Second, 5)
		require.Empty(t, log.said(t), "hits are not logged")

		dead := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		testkit.Hits(t, throttr.NewRateLimit(dead.Backend()), 1, "orphan", 2*time.Second, 5)
		dead.Close()
		time.Sleep(20 * time.Minute)
		swept := log.entries(t)
		require.Len(t, swept, 1)
		for name, want := range map[string]any{"msg": "throttr: server swept", "server": "memory:1", "records": 1.0, "removed": 1.0, "kept": 0.0, "foreign": 0.0} {
			require.Equal(t, want, swept[0][name], name)
		}
		log.said(t)

		remove := srv.Inject(mockserver.Fault{Drop: true}) // so does a server that has locked up
		time.Sleep(2 * time.Minute)
		locked := slices.DeleteFunc(log.said(t), func(line string) bool { return strings.Contains(line, "sweep failed") })
		require.Equal(t, []string{"ERROR throttr: server accepts connections but answers nothing: locked up (H12); only a restart helps memory:1"}, locked)
		_, _, err = client.Query(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrLockedUp)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.True(t, testkit.SafeToRetry(err) && client.Stats().Servers[0].LockedUp)
		srv.Refuse(true)
		time.Sleep(10 * time.Second)
		_, _, err = client.Query(t.Context(), "k")
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.NotErrorIs(t, err, throttr.ErrLockedUp, "it may have been ended")
		require.True(t, client.Stats().Servers[0].LockedUp, "it has not responded since")
		srv.Refuse(false)
		remove()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"INFO throttr: server responds again memory:1"}, log.said(t))
	})
	for _, p := range []throttr.Parking{throttr.ParkingAutomatic, throttr.ParkingAlways} {
		synctest.Test(t, func(t *testing.T) {
			srv, log := testkit.InMemory(t), &journal{}
			srv.Set("", 7, time.Minute) // in milliseconds
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Logger: log.logger(), Parking: p}))
			testkit.Hits(t, testkit.NewRateLimit(client.Backend()), 1, "k", time.Second, 5)
			time.Sleep(50 * time.Second)
			quota, _ := srv.Counter("")
			left, _ := srv.TTL("")
			require.Equal(t, []any{uint64(7), 10 * time.Second, false}, []any{quota, left, client.Stats().Servers[0].Parked})
			if p == throttr.ParkingAutomatic {
				require.Empty(t, log.said(t), "there is a record of somebody else: nobody wants the server to be parked")
				return
			}
			require.Equal(t, []string{"WARN throttr: the server can't be parked: the record with the empty key is somebody's data memory:1"}, log.said(t), "it is told once")
			require.True(t, srv.Delete(""))
			time.Sleep(time.Minute)
			require.Equal(t, []string{parkedLine}, log.said(t))
		})
	}
}
