package throttr_test

import (
	"bytes"
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

// If some of several servers can't be reached, the error names each, and the connections to the others are closed.
func TestFailedConnectLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble waits for all goroutines
		servers := testkit.Several(t, 3)
		servers[1].Refuse(true)
		servers[2].Refuse(true)
		_, err := throttr.Connect[uint16](t.Context(), servers.Over(throttr.Config{}))
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.Regexp(t, servers[1].Addr()+"(.|\n)*"+servers[2].Addr(), err)
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

// home returns the address of the server that has a counter.
func home(servers testkit.Servers, key string) string {
	for _, srv := range servers {
		if _, ok := srv.Counter(key); ok {
			return srv.Addr()
		}
	}
	return ""
}

func TestBatchReachesTheServersOfItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 300
		servers := testkit.Several(t, 3)
		client := testkit.Client[uint16](t, servers.Over(throttr.Config{MaxInFlight: 30}))
		var b throttr.Batch[uint16]
		var inserts []throttr.Reply[uint16]
		var queries []throttr.CounterReply[uint16]
		for i := range keys {
			key := fmt.Sprint("user:", i)
			inserts = append(inserts, b.Insert(key, uint16(i), testkit.Minute))
			queries = append(queries, b.Query(key))
		}
		require.Equal(t, 2*keys, b.Len())
		require.NoError(t, client.Do(t.Context(), &b))
		homes := map[string]int{}
		for i := range keys {
			ok, err := inserts[i].OK()
			require.NoError(t, err)
			require.True(t, ok)
			counter, ok, err := queries[i].Counter()
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, i, counter.Quota)
			homes[home(servers, fmt.Sprint("user:", i))]++
		}
		require.Len(t, homes, 3)
		for i, s := range client.Stats().Servers {
			require.Equal(t, servers[i].Addr(), s.Server)
			require.EqualValues(t, 1+2*homes[s.Server], s.Answered, "the client has made one request itself")
		}
	})
}

func TestBatchThatCannotBeEncodedIsNotSent(t *testing.T) {
	srv, client := testkit.Start[uint16](t, throttr.Config{})
	long := string(bytes.Repeat([]byte{'k'}, 256))
	for name, c := range map[string]struct {
		add func(*throttr.Batch[uint16])
		err error
	}{
		"key":        {func(b *throttr.Batch[uint16]) { b.Query(long) }, codec.ErrTooLarge},
		"value":      {func(b *throttr.Batch[uint16]) { b.Set("k", make([]byte, 8090), testkit.Minute) }, codec.ErrTooLarge},
		"TTL":        {func(b *throttr.Batch[uint16]) { b.Insert("k", 1, codec.TTL[uint16]{}) }, throttr.ErrTTL},
		"TTL of SET": {func(b *throttr.Batch[uint16]) { b.Set("k", nil, codec.TTL[uint16]{Unit: codec.Hours}) }, throttr.ErrTTL},
		"change":     {func(b *throttr.Batch[uint16]) { b.Update("k", codec.Quota, 3, 1) }, throttr.ErrUpdate},
		"attribute":  {func(b *throttr.Batch[uint16]) { b.Update("k", 2, codec.Patch, 1) }, throttr.ErrUpdate},
	} {
		t.Run(name, func(t *testing.T) {
			var b throttr.Batch[uint16]
			good := b.Insert("good", 1, testkit.Minute)
			c.add(&b)
			b.Purge("good")
			for range 2 {
				err := client.Do(t.Context(), &b)
				require.ErrorIs(t, err, c.err)
				require.ErrorContains(t, err, "request 1: ")
				_, err = good.OK()
				require.ErrorIs(t, err, throttr.ErrBatch, "it was not sent")
			}
			b.Reset()
			require.Zero(t, b.Len())
			b.Query("good")
			require.NoError(t, client.Do(t.Context(), &b), "after a Reset")
		})
	}
	require.Equal(t, 1, srv.Requests(codec.OpInsert), "of the probe")
}

func TestBatchUsedOutOfOrder(t *testing.T) {
	srv, client := testkit.Start[uint16](t, throttr.Config{})
	var b throttr.Batch[uint16]
	_, err := throttr.Reply[uint16]{}.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	p, q, g := b.Purge("p"), b.Query("k"), b.Get("k")
	_, err = p.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	_, _, err = q.Counter()
	require.ErrorIs(t, err, throttr.ErrBatch)
	_, _, err = g.Buffer()
	require.ErrorIs(t, err, throttr.ErrBatch)
	require.NoError(t, client.Do(t.Context(), &b))
	require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrBatch)
	_, _, err = q.Counter()
	require.NoError(t, err, "the responses remain")

	late := b.Purge("k")
	_, err = late.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrBatch)
	_, _, err = q.Counter()
	require.NoError(t, err)
	require.Equal(t, 4+1, srv.Requests(codec.OpPurge), "of the probe and the batch")
}

func TestServerThatIsDownFailsOnlyItsPartOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := testkit.Several(t, 2)
		client := testkit.Client[uint16](t, servers.Over(throttr.Config{}))
		servers[0].Disconnect()
		servers[0].Refuse(true)
		synctest.Wait()
		var b throttr.Batch[uint16]
		responses := map[string]throttr.Reply[uint16]{}
		for i := range 50 {
			key := fmt.Sprint("user:", i)
			responses[key] = b.Insert(key, 1, testkit.Minute)
		}
		err := client.Do(t.Context(), &b)
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.False(t, testkit.SafeToRetry(err), "the other server has executed its part")
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, servers[0].Addr(), failed.Server)
		failures := 0
		for key, r := range responses {
			ok, err := r.OK()
			if home(servers, key) == servers[1].Addr() {
				require.NoError(t, err)
				require.True(t, ok)
				continue
			}
			failures++
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.True(t, testkit.SafeToRetry(err), "this part was not sent")
		}
		require.Greater(t, failures, 10)
		require.Less(t, failures, 40)
	})
}

func TestRestOfABatchIsNotSentAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, client := testkit.Start[uint16](t, throttr.Config{MaxConns: 1, MaxInFlight: 10})
		srv.Inject(mockserver.Fault{Op: codec.OpInsert, Skip: 15, Disconnect: true, Times: 1})
		var b throttr.Batch[uint16]
		var responses []throttr.Reply[uint16]
		for i := range 40 {
			responses = append(responses, b.Insert(fmt.Sprint(i), 1, testkit.Minute))
		}
		err := client.Do(t.Context(), &b)
		require.ErrorIs(t, err, throttr.ErrConnLost)
		require.False(t, testkit.SafeToRetry(err))
		for i, r := range responses {
			ok, err := r.OK()
			switch {
			case i < 10:
				require.NoError(t, err)
				require.True(t, ok)
			case i < 20: // in flight when the connection was lost
				require.ErrorIs(t, err, throttr.ErrConnLost)
				require.False(t, testkit.SafeToRetry(err))
			default:
				require.ErrorIs(t, err, throttr.ErrConnLost)
				require.True(t, testkit.SafeToRetry(err))
				_, ok := srv.Counter(fmt.Sprint(i))
				require.False(t, ok)
			}
		}
	})
}

// The mock server reports a violation for each TTL that would lock up a real server (H13).

var units = []codec.Unit{codec.Nanoseconds, codec.Microseconds, codec.Milliseconds, codec.Seconds, codec.Minutes, codec.Hours}

func TestInvalidTTLIsRejected(t *testing.T) {
	testkit.ForEachSize(t, testInvalidTTL[uint8], testInvalidTTL[uint16], testInvalidTTL[uint32], testInvalidTTL[uint64])
}

func testInvalidTTL[T codec.Value](t *testing.T) {
	srv, client := testkit.Start[T](t, throttr.Config{}, mockserver.WithVirtualClock())
	for _, unit := range append(units, 0, 7, 255) {
		for _, amount := range []T{0, 1, ^T(0) / 2, ^T(0) - 1, ^T(0)} {
			ttl := codec.TTL[T]{Amount: amount, Unit: unit}
			fits := amount > 0 && unit.Known() && uint64(amount) <= uint64(1<<63-1)/uint64(unit.Duration())
			key := fmt.Sprint(unit, amount)
			var b throttr.Batch[T]
			insert, set := b.Insert("bi"+key, 1, ttl), b.Set("bs"+key, nil, ttl)
			batchErr := client.Do(t.Context(), &b)
			ok, err := client.Insert(t.Context(), "i"+key, 1, ttl)
			stored, setErr := client.Set(t.Context(), "s"+key, nil, ttl)
			if !fits {
				require.ErrorIs(t, err, throttr.ErrTTL, ttl)
				require.ErrorIs(t, setErr, throttr.ErrTTL, ttl)
				require.ErrorIs(t, batchErr, throttr.ErrTTL, ttl)
				continue
			}
			require.NoError(t, err, ttl)
			require.NoError(t, setErr)
			require.NoError(t, batchErr)
			inserted, _ := insert.OK()
			batched, _ := set.OK()
			require.True(t, ok && stored && inserted && batched, ttl)
			// A nanosecond is over before the next request.
			if ttl.Duration() > time.Microsecond {
				_, ok = srv.Counter("i" + key)
				require.True(t, ok, ttl)
			}
		}
	}
}

// What is left of a record is known to an Update, which can change it, and not to a batch, which can only replace it.
func TestTTLChangesAreBounded(t *testing.T) {
	testkit.ForEachSize(t, testTTLChanges[uint8], testTTLChanges[uint16], testTTLChanges[uint32], testTTLChanges[uint64])
}

func testTTLChanges[T codec.Value](t *testing.T) {
	srv, client := testkit.Start[T](t, throttr.Config{}, mockserver.WithVirtualClock())
	amounts := []T{0, 1, 99, 100, 101, 150, ^T(0) / 2, ^T(0) - 101, ^T(0) - 99, ^T(0) - 1, ^T(0)}
	for _, unit := range units[2:] { // finer ones end too soon
		for _, change := range []codec.Change{codec.Patch, codec.Increase, codec.Decrease} {
			for _, amount := range amounts {
				key := fmt.Sprint(unit, change, amount)
				ok, err := client.Insert(t.Context(), key, 1, codec.TTL[T]{Amount: 100, Unit: unit})
				require.NoError(t, err)
				require.True(t, ok)
				ok, err = client.Update(t.Context(), key, codec.TimeToLive, change, amount)
				left, alive := srv.TTL(key)
				require.True(t, alive, "%s: %v %v", key, ok, err)
				if err != nil {
					require.ErrorIs(t, err, throttr.ErrTTL)
					require.False(t, ok)
					require.InDelta(t, 100*unit.Duration(), left, 10, "it has not changed")
				} else {
					require.True(t, ok)
					c, _, err := client.Query(t.Context(), key)
					require.NoError(t, err)
					require.Equal(t, (left - 1).Truncate(unit.Duration()), c.TTL.Duration(), "%s: a QUERY can tell what remains", key)
				}
				var b throttr.Batch[T]
				update := b.Update(key, codec.TimeToLive, change, amount)
				err = client.Do(t.Context(), &b)
				if change != codec.Patch || amount == 0 || uint64(amount) > 2_562_047 { // hours
					require.ErrorIs(t, err, throttr.ErrTTL, key)
					continue
				}
				require.NoError(t, err, key)
				ok, err = update.OK()
				require.NoError(t, err)
				require.True(t, ok)
				left, _ = srv.TTL(key)
				require.InDelta(t, time.Duration(amount)*unit.Duration(), left, 10)
			}
		}
	}
	ok, err := client.Update(t.Context(), "none", codec.TimeToLive, codec.Increase, 1)
	require.NoError(t, err)
	require.False(t, ok)
}
