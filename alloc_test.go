package throttr_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// echo is a connection to a server that responds to each write at once, and does not allocate.
type echo struct {
	net.Conn
	handshake [][]byte // responses that are due
	response  []byte
	responses chan []byte
	once      sync.Once
}

func (e *echo) Write(p []byte) (int, error) {
	if len(e.handshake) > 0 {
		e.responses <- e.handshake[0]
		e.handshake = e.handshake[1:]
		return len(p), nil
	}
	e.responses <- e.response
	return len(p), nil
}

func (e *echo) Read(p []byte) (int, error) {
	a, ok := <-e.responses
	if !ok {
		return 0, io.EOF
	}
	return copy(p, a), nil
}

func (e *echo) Close() error {
	e.once.Do(func() { close(e.responses) })
	return nil
}

// allocations returns the number of allocations of a request with the given response, on a server
// that is not parked.
func allocations(t *testing.T, response []byte, request func(context.Context, *throttr.Client[uint16]) error) float64 {
	return allocationsWith(t, throttr.ParkingNever, response, request)
}

func allocationsWith(t *testing.T, p throttr.Parking, response []byte, request func(context.Context, *throttr.Client[uint16]) error) float64 {
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
		Parking: p,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			first, second := testkit.HandshakeResponses(2)
			if p == throttr.ParkingAlways {
				second = append(second, 1, 1) // to the requests that park the server
			}
			return &echo{handshake: [][]byte{first, second}, response: response, responses: make(chan []byte, 4)}, nil
		},
	})
	require.NoError(t, err)
	defer client.Close()
	require.Equal(t, p == throttr.ParkingAlways, client.Stats().Servers[0].Parked)
	return testing.AllocsPerRun(2000, func() {
		if err := request(t.Context(), client); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestsDoNotAllocate(t *testing.T) {
	allowed := 0.0
	if race.Enabled { // sync.Pool then drops one object in four, on purpose
		allowed = 4
	}
	found := []byte{1, 5, 0, 4, 9, 0}
	for name, got := range map[string]float64{
		"Query": allocations(t, found, func(ctx context.Context, c *throttr.Client[uint16]) error {
			_, _, err := c.Query(ctx, "user:42:requests")
			return err
		}),
		"Update": allocations(t, []byte{1}, func(ctx context.Context, c *throttr.Client[uint16]) error {
			_, err := c.Update(ctx, "user:42:requests", codec.Quota, codec.Increase, 1)
			return err
		}),
		"Insert": allocations(t, []byte{1}, func(ctx context.Context, c *throttr.Client[uint16]) error {
			_, err := c.Insert(ctx, "user:42:requests", 1, testkit.Minute)
			return err
		}),
		// The first status is that of the INSERT, the second one keeps the server parked.
		"Insert on a parked server": allocationsWith(t, throttr.ParkingAlways, []byte{1, 1}, func(ctx context.Context, c *throttr.Client[uint16]) error {
			_, err := c.Insert(ctx, "user:42:requests", 1, testkit.Minute)
			return err
		}),
		"Purge": allocations(t, []byte{1}, func(ctx context.Context, c *throttr.Client[uint16]) error {
			_, err := c.Purge(ctx, "user:42:requests")
			return err
		}),
	} {
		t.Logf("%s: %v allocations", name, got)
		require.LessOrEqual(t, got, allowed, name)
	}
}

// A reservation is one allocation, and a wait whose turn it is at once has six.
func TestTakesInMemoryAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := throttr.NewRateLimit(memory.New())
	limit := throttr.Limit{Name: "a", Max: 1 << 40, Scale: time.Hour, Algorithm: throttr.TokenBucket}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	longer := throttr.Limit{Name: "a", Max: 1 << 40, Scale: 2 * time.Hour, Algorithm: throttr.TokenBucket}
	require.Zero(t, testing.AllocsPerRun(1000, func() { l.TakeAll(ctx, limit.For("k", 1), longer.For("k", 1)) }))
	observed := throttr.NewRateLimit(memory.New(), throttr.WithPolicy(throttr.AllowHits), throttr.WithFallback(memory.New()),
		throttr.WithObserver(func(context.Context, throttr.Event) {}))
	for name, take := range map[string]func(){
		"granted":       func() { l.Take(ctx, "k", limit, 1) },
		"named, denied": func() { observed.Take(ctx, "k", throttr.Limit{Name: "b", Max: 1, Scale: time.Hour}, 1) },
		"observed":      func() { observed.Take(ctx, "k", limit, 1) },
		"denied":        func() { l.Take(ctx, "k", throttr.Limit{Max: 1, Scale: time.Hour}, 1) },
		"three":         func() { l.TakeAll(ctx, limit.For("k", 1), longer.For("k", 1), limit.For("l", 1)) },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, take), name)
	}
	// A call of a store that may be away has a context that ends with the time for it.
	away := throttr.NewRateLimit(struct{ throttr.Backend }{memory.New()})
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { away.Take(ctx, "k", limit, 1) }), 4.0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { away.TakeAll(ctx, limit.For("k", 1), longer.For("k", 1)) }), 5.0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { l.Reserve(ctx, limit.For("k", 1)) }), 1.0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { l.Wait(ctx, "k", limit, 1) }), 6.0)
}

// A place of a lease needs neither a store nor a context. A hit on a server has one that ends with the time for it, and
// those that are derived from it.
func TestHitsOnServersAndLeasesAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	servers := openURL(t, "throttr://"+mockserver.RunT(t).Addr())
	leases := lease.New(servers, lease.WithAge(time.Hour))
	defer leases.Close()
	for _, c := range []struct {
		backend throttr.Backend
		most    float64
	}{{servers, 10}, {leases, 0}} {
		l := throttr.NewRateLimit(c.backend, throttr.WithTimeout(time.Minute))
		for range 100 { // the key becomes hot
			_, err := l.Hit(t.Context(), "k", time.Hour, 60000)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			if _, err := l.Hit(t.Context(), "k", time.Hour, 60000); err != nil {
				t.Error(err)
			}
		}), c.most)
	}
}
