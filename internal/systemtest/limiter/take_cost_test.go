package limiter_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// takeCost is what a call costs: requests by their kinds, and round trips.
type takeCost struct{ inserts, updates, queries, trips int }

// costed is a limiter on servers whose requests about windows are counted, and whose responses take
// a millisecond.
type costed struct {
	*testing.T
	limiter, other *throttr.RateLimit

	mu   sync.Mutex // guards cost
	cost takeCost
}

func newCosted(t *testing.T, servers int) *costed {
	c := &costed{T: t}
	var names []string
	dials := map[string]func(context.Context) (net.Conn, error){}
	for i := range servers {
		srv := mockserver.RunT(t, mockserver.WithAddr("memory", fmt.Sprintf("memory:%d", i+1)), mockserver.WithObserver(c.observe))
		names, dials[srv.Addr()] = append(names, srv.Addr()), srv.Dial
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	}
	connect := func() *throttr.RateLimit {
		client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
			Servers: names, HealthInterval: time.Hour, Parking: throttr.ParkingNever,
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return dials[address](ctx) },
		})
		require.NoError(t, err)
		t.Cleanup(func() { client.Close() })
		limiter := testkit.NewRateLimit(client.Backend())
		for i := range 10 * servers { // so that there are connections
			testkit.Hits(t, limiter, 1, fmt.Sprint("another", i), time.Minute, 10)
		}
		return limiter
	}
	c.limiter, c.other = connect(), connect()
	time.Sleep(2 * time.Second) // the sweepers have made their first QUERYs
	return c
}

func (c *costed) observe(e mockserver.Exec) {
	if _, ok := fixedwindow.ParseName([]byte(e.Key)); !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Op {
	case codec.OpInsert:
		c.cost.inserts++
	case codec.OpUpdate:
		c.cost.updates++
	case codec.OpQuery:
		c.cost.queries++
	}
}

// costs fails the test unless a call costs what is wanted.
func (c *costed) costs(name string, want takeCost, call func()) {
	c.Helper()
	c.mu.Lock()
	c.cost = takeCost{}
	c.mu.Unlock()
	begun := time.Now()
	call()
	trips := int(time.Since(begun) / time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cost.trips = trips
	c.Logf("%-60s %+v", name, c.cost)
	if c.cost != want {
		c.Errorf("%s: want %+v", name, want)
	}
}

// take fails the test unless a take of one key or several is granted, or refused.
func (c *costed) take(limiter *throttr.RateLimit, want bool, n uint64, keys ...string) {
	c.Helper()
	takes := make([]throttr.Take, len(keys))
	for i, key := range keys {
		takes[i] = throttr.Take{Key: key, Limit: throttr.Limit{Max: 10, Scale: time.Minute}, N: n}
	}
	ok, results, err := limiter.TakeAll(c.Context(), takes...)
	require.NoError(c, err)
	require.Equal(c, want, ok, "%+v", results)
}

// reserve reserves 2 of each key and commits 1.
func (c *costed) reserve(keys ...string) {
	takes := make([]throttr.Take, len(keys))
	used := make([]uint64, len(keys))
	for i, key := range keys {
		takes[i] = throttr.Take{Key: key, Limit: throttr.Limit{Max: 10, Scale: time.Minute}, N: 2}
		used[i] = 1
	}
	rv, ok, err := c.limiter.Reserve(c.Context(), takes...)
	require.NoError(c, err)
	require.True(c, ok)
	require.NoError(c, rv.Commit(c.Context(), used...))
}

// docs/internals/windows.md has the figures.
func TestRequestsOfTakes(t *testing.T) {
	const denialMemory = time.Second
	three := []string{"a", "b", "x"}
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, 1)
		c.costs("a take, first window of a key", takeCost{inserts: 1, queries: 2, trips: 2}, func() { c.take(c.limiter, true, 1, "a") })
		c.costs("a take, known window", takeCost{updates: 1, queries: 1, trips: 1}, func() { c.take(c.limiter, true, 1, "a") })
		c.costs("a take and a give-back, known window", takeCost{updates: 2, queries: 2, trips: 3}, func() { c.reserve("a") })
		c.costs("a take that does not fit, just read", takeCost{}, func() { c.take(c.limiter, false, 9, "a") })
		time.Sleep(denialMemory)
		c.costs("a take that does not fit, read a while ago", takeCost{queries: 1, trips: 1}, func() { c.take(c.limiter, false, 9, "a") })
		c.take(c.other, true, 4, "a")
		c.costs("a take that does not fit any more", takeCost{updates: 2, queries: 1, trips: 2}, func() { c.take(c.limiter, false, 4, "a") })
	})
	for servers, trips := range map[int]int{1: 1, 2: 2} { // of two servers, the first one has one of the keys
		synctest.Test(t, func(t *testing.T) {
			c := newCosted(t, servers)
			for _, key := range three {
				c.take(c.limiter, true, 1, key)
			}
			name := func(s string) string { return fmt.Sprintf("%s, servers: %d", s, servers) }
			c.costs(name("three takes, known windows"), takeCost{updates: 3, queries: 3, trips: trips}, func() { c.take(c.limiter, true, 1, three...) })
			c.costs(name("three takes and give-backs"), takeCost{updates: 6, queries: 6, trips: trips + 2}, func() { c.reserve(three...) })
			c.costs(name("three takes, one does not fit, just read"), takeCost{}, func() { c.take(c.limiter, false, 8, three...) })
			time.Sleep(denialMemory)
			c.costs(name("three takes, one does not fit, read a while ago"), takeCost{queries: 3, trips: 1}, func() { c.take(c.limiter, false, 8, three...) })
			for _, key := range three {
				c.take(c.other, true, 4, key)
			}
			// On two servers, the first one refuses, and the second one is not asked.
			asked := map[int]int{1: 3, 2: 1}[servers]
			c.costs(name("three takes, none fits any more"), takeCost{updates: 2 * asked, queries: asked, trips: 2}, func() { c.take(c.limiter, false, 4, three...) })
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, 1)
		c.costs("three takes, first windows", takeCost{inserts: 3, queries: 12, trips: 7}, func() { c.take(c.limiter, true, 1, three...) })
		c.costs("three takes, two known windows", takeCost{inserts: 1, updates: 2, queries: 6, trips: 5}, func() { c.take(c.limiter, true, 1, "a", "b", "d") })
	})
}
