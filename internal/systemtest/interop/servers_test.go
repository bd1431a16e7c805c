package interop_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
)

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
