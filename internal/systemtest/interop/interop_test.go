// Package interop_test is a suite for live servers:
//
//	THROTTR_SERVERS=127.0.0.1:9000,127.0.0.1:9001 go test -run TestInteropLiveServers -v ./internal/systemtest/interop
//
// It finds out the value size of each server. It can share a server with other clients: its keys and channels are
// random, it removes its records, none of which expires. It lists all keys of the server, which takes long if there are
// many.
//
// The suite always runs against mock servers as well.
package interop_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

func TestInteropLiveServers(t *testing.T) {
	servers := os.Getenv("THROTTR_SERVERS")
	if servers == "" {
		t.Skip("THROTTR_SERVERS is not set. It is a list of live servers, host:port, separated by commas.")
	}
	for _, addr := range strings.Split(servers, ",") {
		t.Run(addr, func(t *testing.T) {
			size := valueSize(t, addr)
			t.Logf("the value size of %s is %d", addr, size)
			runSuite(t, size, addr, true)
		})
	}
}

// valueSize returns the value size of a server.
func valueSize(t *testing.T, addr string) int {
	t.Helper()
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{addr}})
	var other *throttr.ValueSizeError
	if errors.As(err, &other) {
		return other.Actual
	}
	require.NoError(t, err)
	require.NoError(t, client.Close())
	return codec.Size[uint16]()
}

func TestInteropMockServers(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprintf("uint%d", 8*size), func(t *testing.T) {
			t.Parallel()
			srv := mockserver.RunT(t, mockserver.WithValueSize(size), mockserver.WithHazard(mockserver.LateExpiry, true))
			t.Run("suite", func(t *testing.T) { runSuite(t, size, srv.Addr(), false) })
			require.Empty(t, testkit.Keys(srv), "records that were not removed")
			require.Zero(t, srv.Expired(), "records that expired")
		})
	}
}

// runSuite runs the suite against a server whose values have size bytes. Live servers get all of it.
func runSuite(t *testing.T, size int, addr string, live bool) {
	suites := map[int]func(*testing.T, string, bool){
		1: runSuiteOf[uint8], 2: runSuiteOf[uint16], 4: runSuiteOf[uint32], 8: runSuiteOf[uint64],
	}
	require.Contains(t, suites, size, "the value size of the server")
	suites[size](t, addr, live)
}

func runSuiteOf[T codec.Value](t *testing.T, addr string, live bool) {
	for name, test := range map[string]func(*testing.T, *suite[T]){
		"counters": testCounters[T], "buffers": testBuffers[T], "TTLs": testTTLs[T], "longest frame": testLongestFrame[T],
		"wrong value size": testWrongSize[T], "inspection": testInspection[T], "connections": testConnections[T],
		"subscriptions": testSubscriptions[T], "windows that clients share": testSharedWindows[T],
	} {
		t.Run(name, func(t *testing.T) {
			if name == "windows that clients share" && !live && !testkit.Thorough() {
				t.Skip("waits for windows to end: runs with THROTTR_SLOW_TESTS=1")
			}
			test(t, newSuite[T](t, addr))
		})
	}
}

// suite is what each test of the suite starts with.
type suite[T codec.Value] struct {
	addr   string
	client *throttr.Client[T]
	run    string // a random prefix of keys and channels
	ctx    context.Context
	ttl    codec.TTL[T] // longer than any test
}

func newSuite[T codec.Value](t *testing.T, addr string) *suite[T] {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s := &suite[T]{addr: addr, run: "interop:" + rand.Text() + ":", ctx: ctx}
	s.ttl = codec.TTL[T]{Amount: 200, Unit: codec.Seconds}
	s.client = testkit.Client[T](t, throttr.Config{Servers: []string{addr}})
	return s
}

// key returns a key that no other client uses, and that is purged at the end of the test.
func (s *suite[T]) key(t *testing.T, name string) string {
	key := s.run + name
	t.Cleanup(func() {
		if _, err := s.client.Purge(s.ctx, key); err != nil {
			t.Errorf("purge: %v", err)
		}
	})
	return key
}

// quota returns the counter under key.
func (s *suite[T]) quota(t *testing.T, key string) T {
	t.Helper()
	c, ok, err := s.client.Query(s.ctx, key)
	succeeds(t)(ok, err)
	return c.Quota
}

// succeeds returns a function that requires that the status of a response is success.
func succeeds(t *testing.T) func(ok bool, err error) { return status(t, true) }

// fails returns a function that requires that the status of a response is failure.
func fails(t *testing.T) func(ok bool, err error) { return status(t, false) }

func status(t *testing.T, want bool) func(ok bool, err error) {
	return func(ok bool, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, ok, "the status")
	}
}

// found leaves out the value of a response.
func found[V any](_ V, ok bool, err error) (bool, error) { return ok, err }

func testCounters[T codec.Value](t *testing.T, s *suite[T]) {
	k := s.key(t, "counter")
	fails(t)(found(s.client.Query(s.ctx, k)))
	fails(t)(s.client.Update(s.ctx, k, codec.Quota, codec.Increase, 1))
	fails(t)(s.client.Purge(s.ctx, k))

	succeeds(t)(s.client.Insert(s.ctx, k, 5, s.ttl))
	fails(t)(s.client.Insert(s.ctx, k, 9, s.ttl))
	require.Equal(t, T(5), s.quota(t, k))

	succeeds(t)(s.client.Update(s.ctx, k, codec.Quota, codec.Increase, 3))
	require.Equal(t, T(8), s.quota(t, k))
	succeeds(t)(s.client.Update(s.ctx, k, codec.Quota, codec.Decrease, 2))
	require.Equal(t, T(6), s.quota(t, k))
	fails(t)(s.client.Update(s.ctx, k, codec.Quota, codec.Decrease, 7))
	require.Equal(t, T(6), s.quota(t, k))
	succeeds(t)(s.client.Update(s.ctx, k, codec.Quota, codec.Patch, 42))
	require.Equal(t, T(42), s.quota(t, k))

	succeeds(t)(s.client.Purge(s.ctx, k))
	fails(t)(found(s.client.Query(s.ctx, k)))
	succeeds(t)(s.client.Insert(s.ctx, k, 1, s.ttl)) // a purged key is usable at once
}

func testBuffers[T codec.Value](t *testing.T, s *suite[T]) {
	buffer, counter := s.key(t, "buffer"), s.key(t, "counter")
	fails(t)(found(s.client.Get(s.ctx, buffer)))
	for _, value := range []string{"hello", "", strings.Repeat("x", 255)} {
		succeeds(t)(s.client.Set(s.ctx, buffer, []byte(value), s.ttl))
		b, ok, err := s.client.Get(s.ctx, buffer)
		succeeds(t)(ok, err)
		require.Equal(t, value, string(b.Value))
		require.Equal(t, s.ttl.Unit, b.TTL.Unit)
		require.LessOrEqual(t, b.TTL.Amount, s.ttl.Amount)
	}
	require.Zero(t, s.quota(t, buffer), "QUERY finds a buffer with a quota of 0")
	fails(t)(s.client.Insert(s.ctx, buffer, 1, s.ttl))
	fails(t)(s.client.Update(s.ctx, buffer, codec.Quota, codec.Increase, 1))

	succeeds(t)(s.client.Insert(s.ctx, counter, 1, s.ttl))
	fails(t)(s.client.Set(s.ctx, counter, []byte("x"), s.ttl))
	b, ok, err := s.client.Get(s.ctx, counter)
	succeeds(t)(ok, err)
	require.Empty(t, b.Value, "GET finds a counter with an empty value")
}

// testTTLs makes a record in each unit in which a value can hold some seconds, and changes a TTL.
func testTTLs[T codec.Value](t *testing.T, s *suite[T]) {
	for unit := codec.Nanoseconds; unit <= codec.Hours; unit++ {
		amount := min(max(1, uint64(time.Minute/unit.Duration())), uint64(^T(0)))
		ttl := codec.TTL[T]{Amount: T(amount), Unit: unit}
		if ttl.Duration() < 4*time.Second {
			continue // the record might expire during the test
		}
		k := s.key(t, "unit:"+unit.String())
		sent := time.Now()
		succeeds(t)(s.client.Insert(s.ctx, k, 1, ttl))
		c, ok, err := s.client.Query(s.ctx, k)
		succeeds(t)(ok, err)
		require.Equal(t, unit, c.TTL.Unit)
		require.LessOrEqual(t, c.TTL.Amount, ttl.Amount, unit)
		require.GreaterOrEqual(t, c.TTL.Duration(), ttl.Duration()-time.Since(sent)-2*unit.Duration(), unit)
	}

	k := s.key(t, "ttl")
	succeeds(t)(s.client.Insert(s.ctx, k, 1, codec.TTL[T]{Amount: 100, Unit: codec.Seconds}))
	for _, c := range []struct {
		change codec.Change
		value  T
		want   T // seconds left, at most
	}{
		{codec.Patch, 200, 200}, {codec.Decrease, 50, 150}, {codec.Increase, 60, 210},
	} {
		succeeds(t)(s.client.Update(s.ctx, k, codec.TimeToLive, c.change, c.value))
		record, ok, err := s.client.Query(s.ctx, k)
		succeeds(t)(ok, err)
		require.LessOrEqual(t, record.TTL.Amount, c.want, c.change)
		require.GreaterOrEqual(t, record.TTL.Amount, c.want-30, c.change)
	}
}

// testLongestFrame sends the longest SET that fits the buffer of a server, and whose length fits
// a value.
func testLongestFrame[T codec.Value](t *testing.T, s *suite[T]) {
	k := s.key(t, "longest")
	frame, err := codec.Set[T]{Key: []byte(k), TTL: s.ttl}.AppendBinary(nil)
	require.NoError(t, err)
	length := min(uint64(codec.MaxFrame-len(frame)), uint64(^T(0)))
	value := bytes.Repeat([]byte{0x19}, int(length))
	succeeds(t)(s.client.Set(s.ctx, k, value, s.ttl))
	b, ok, err := s.client.Get(s.ctx, k)
	succeeds(t)(ok, err)
	require.True(t, bytes.Equal(value, b.Value))
	_, err = s.client.Set(s.ctx, k, append(value, 0), s.ttl)
	require.ErrorIs(t, err, codec.ErrTooLarge)
}

func testWrongSize[T codec.Value](t *testing.T, s *suite[T]) {
	cfg := throttr.Config{Servers: []string{s.addr}}
	_, err := throttr.Connect[uint64](s.ctx, cfg)
	if codec.Size[T]() == 8 {
		_, err = throttr.Connect[uint16](s.ctx, cfg)
	}
	require.ErrorIs(t, err, throttr.ErrValueSizeMismatch)
	var size *throttr.ValueSizeError
	require.ErrorAs(t, err, &size)
	require.Equal(t, codec.Size[T](), size.Actual)
	fails(t)(found(s.client.Query(s.ctx, s.run+"missing"))) // the server still responds
}

func testSubscriptions[T codec.Value](t *testing.T, s *suite[T]) {
	channel := s.run + "news"
	fails(t)(found(s.client.Channel(s.ctx, channel)))
	fails(t)(s.client.Publish(s.ctx, channel, []byte("no subscriber")))

	first, second := testkit.Subscribe(t, s.client, channel), testkit.Subscribe(t, s.client, channel)
	for _, payload := range []string{"hello", "", "\x00\x01\x19"} {
		succeeds(t)(s.client.Publish(s.ctx, channel, []byte(payload)))
		for _, sub := range []*pubsub.Subscription{first, second} {
			require.Equal(t, pubsub.Message{Server: s.addr, Channel: channel, Payload: []byte(payload)}, testkit.Next(t, sub))
		}
	}

	subscribers, ok, err := s.client.Channel(s.ctx, channel)
	succeeds(t)(ok, err)
	require.Len(t, subscribers, 1, "subscriptions of a client share one on the server")
	all, err := testkit.Collect(t, s.client.Channels(s.ctx))
	require.NoError(t, err)
	channels := map[string]uint64{}
	for _, c := range all {
		channels[c.Name] = c.Connections
	}
	require.Equal(t, uint64(1), channels[channel])
	require.Equal(t, uint64(1), channels[subscribers[0].ID.String()])
	require.NotZero(t, channels[pubsub.All])

	first.Close()
	succeeds(t)(s.client.Publish(s.ctx, channel, []byte("last")))
	require.Equal(t, "last", string(testkit.Next(t, second).Payload), "no message is received twice")
	second.Close()
	require.Eventually(t, func() bool {
		_, ok, err := s.client.Channel(s.ctx, channel)
		return !ok && err == nil
	}, 10*time.Second, time.Millisecond, "UNSUBSCRIBE")
}

// Other clients may use the server, so these tests only compare what belongs to them.

// testInspection requires that LIST and INFO tell of two records.
func testInspection[T codec.Value](t *testing.T, s *suite[T]) {
	counter, buffer := s.key(t, "counter"), s.key(t, "buffer")
	succeeds(t)(s.client.Insert(s.ctx, counter, 5, s.ttl))
	succeeds(t)(s.client.Set(s.ctx, buffer, []byte("hello"), s.ttl))
	infos, err := s.client.Info(s.ctx)
	require.NoError(t, err)
	require.Len(t, infos, 1)
	info := infos[0]
	require.Equal(t, s.addr, info.Server)
	require.NotEmpty(t, info.Version)
	require.False(t, info.Time.Before(info.RunningSince.Truncate(time.Second)))
	require.NotZero(t, info.Counters)
	require.NotZero(t, info.Buffers)
	require.Equal(t, info.Keys, info.Counters+info.Buffers)
	require.GreaterOrEqual(t, info.CounterBytes, uint64(codec.Size[T]()))
	require.GreaterOrEqual(t, info.BufferBytes, uint64(len("hello")))
	require.NotZero(t, info.Connections)
	t.Logf("%s runs version %s", s.addr, info.Version)

	all, err := testkit.Collect(t, s.client.List(s.ctx))
	require.NoError(t, err)
	own := map[string]inspect.Record{}
	for _, e := range all {
		if e.Key == counter || e.Key == buffer {
			require.NotContains(t, own, e.Key)
			require.WithinDuration(t, info.Time.Add(s.ttl.Duration()), e.ExpiresAt, 30*time.Second, "by the server's clock")
			e.ExpiresAt = time.Time{}
			own[e.Key] = e
		}
	}
	size := uint64(codec.Size[T]())
	require.Equal(t, map[string]inspect.Record{
		counter: {Server: s.addr, Key: counter, Kind: inspect.Counter, Unit: s.ttl.Unit, BytesUsed: size},
		buffer:  {Server: s.addr, Key: buffer, Kind: inspect.Buffer, Unit: s.ttl.Unit, BytesUsed: 5},
	}, own)
}

func testConnections[T codec.Value](t *testing.T, s *suite[T]) {
	who, err := s.client.WhoAmI(s.ctx)
	require.NoError(t, err)
	require.Len(t, who, 1)
	self, ok, err := s.client.Connection(s.ctx, s.addr, who[0].ID)
	succeeds(t)(ok, err)
	require.Equal(t, who[0].ID, self.ID)
	require.Equal(t, s.addr, self.Server)
	require.Equal(t, codec.ClientConnection, self.Type)
	require.Equal(t, self.Kind == codec.TCP, self.Addr.Port() != 0)
	require.NotZero(t, self.Requests.Insert, "the probe")
	fails(t)(found(s.client.Connection(s.ctx, s.addr, codec.ConnID{})))
	all, err := testkit.Collect(t, s.client.Connections(s.ctx))
	require.NoError(t, err)
	found := 0
	for _, e := range all {
		if e.ID == self.ID {
			found++
			require.Equal(t, self.Addr, e.Addr)
			require.Equal(t, self.ConnectedAt, e.ConnectedAt)
		}
	}
	require.Equal(t, 1, found)
}

// testSharedWindows has four clients hit a key as fast as they can. They are allowed the limit of each window, and leave
// no records.
func testSharedWindows[T codec.Value](t *testing.T, s *suite[T]) {
	const clients, goroutines, hits, limit, scale = 4, 8, 200, 40, time.Second
	key := s.run + "window"
	var allowed atomic.Int64
	var callers sync.WaitGroup
	var backends []*throttr.ServerBackend
	begun := time.Now()
	for range clients {
		backend := testkit.Client[T](t, throttr.Config{Servers: []string{s.addr}}).Backend()
		backends = append(backends, backend)
		limiter := testkit.NewRateLimit(backend)
		for range goroutines {
			callers.Go(func() { // for two scales at least
				for range hits {
					res, err := limiter.Hit(s.ctx, key, scale, limit)
					if err != nil {
						t.Errorf("hit: %v", err)
						return
					}
					if res.Allowed {
						allowed.Add(1)
					}
					time.Sleep(scale / 100)
				}
			})
		}
	}
	callers.Wait()
	require.LessOrEqual(t, allowed.Load(), limit*int64(time.Since(begun)/scale+1), "windows are a scale apart")
	require.GreaterOrEqual(t, allowed.Load(), int64(2*limit), "and the first two are used up")
	time.Sleep(scale + time.Second) // the TTLs of some servers have a unit of a second
	for _, b := range backends {
		require.NoError(t, b.Close())
	}
	for e, err := range s.client.List(s.ctx) {
		require.NoError(t, err)
		require.NotContains(t, e.Key, key)
	}
}
