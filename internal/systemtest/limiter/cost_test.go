package limiter_test

import (
	"fmt"
	"slices"
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

// cost is what a call costs: requests about windows by their kinds, those that keep the server parked, and
// round trips.
type cost struct{ inserts, updates, queries, parks, trips int }

// costed is limiters on servers whose requests are counted, and whose responses take a millisecond.
type costed struct {
	*testing.T
	limiter, other *throttr.RateLimit

	mu   sync.Mutex // guards cost
	cost cost
}

func newCosted(t *testing.T, servers int, parking throttr.Parking) *costed {
	c := &costed{T: t}
	all := testkit.Several(t, servers, mockserver.WithObserver(c.observe))
	for _, srv := range all {
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	}
	for _, l := range []**throttr.RateLimit{&c.limiter, &c.other} {
		cfg := all.Over(throttr.Config{HealthInterval: time.Hour, Parking: parking})
		*l = testkit.NewRateLimit(testkit.Client[uint16](t, cfg).Backend())
		for i := range 10 * servers { // so that there are connections
			testkit.Hits(t, *l, 1, fmt.Sprint("another", i), time.Minute, 10)
		}
	}
	time.Sleep(2 * time.Second) // the sweepers have made their first QUERYs
	return c
}

func (c *costed) observe(e mockserver.Exec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ours := fixedwindow.ParseName([]byte(e.Key))
	switch {
	case e.Key == "" && e.Op == codec.OpUpdate:
		c.cost.parks++
	case !ours:
	case e.Op == codec.OpInsert:
		c.cost.inserts++
	case e.Op == codec.OpUpdate:
		c.cost.updates++
	case e.Op == codec.OpQuery:
		c.cost.queries++
	}
}

// costs requires that a call costs what is wanted.
func (c *costed) costs(name string, want cost, call func()) {
	c.Helper()
	c.mu.Lock()
	c.cost = cost{}
	c.mu.Unlock()
	begun := time.Now()
	call()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cost.trips = int(time.Since(begun) / time.Millisecond)
	require.Equal(c, want, c.cost, name)
}

// take requires that a take of one key or several is granted, or refused.
func (c *costed) take(limiter *throttr.RateLimit, want bool, n uint64, keys ...string) {
	c.Helper()
	ok, results, err := limiter.TakeAll(c.Context(), takesOf(10, n, keys...)...)
	require.NoError(c, err)
	require.Equal(c, want, ok, "%+v", results)
}

// takesOf returns takes of n of each key, of a limit in a minute.
func takesOf(limit, n uint64, keys ...string) []throttr.Take {
	takes := make([]throttr.Take, len(keys))
	for i, key := range keys {
		takes[i] = throttr.Take{Key: key, Limit: throttr.Limit{Max: limit, Scale: time.Minute}, N: n}
	}
	return takes
}

// reserve reserves 2 of each key and commits 1.
func (c *costed) reserve(keys ...string) {
	rv, ok, err := c.limiter.Reserve(c.Context(), takesOf(10, 2, keys...)...)
	require.NoError(c, err)
	require.True(c, ok)
	require.NoError(c, rv.Commit(c.Context(), slices.Repeat([]uint64{1}, len(keys))...))
}

// docs/servers.md has the figures.
func TestRequestsOfAWindow(t *testing.T) {
	known := cost{updates: 1, queries: 1, trips: 1}
	for parking, parks := range map[throttr.Parking]int{throttr.ParkingNever: 0, throttr.ParkingAutomatic: 1} {
		synctest.Test(t, func(t *testing.T) {
			c := newCosted(t, 1, parking)
			hit := func() { testkit.Hits(t, c.limiter, 1, "k", time.Minute, 10) }
			c.costs("the first window of a key", cost{inserts: 1, queries: 2, parks: parks, trips: 2}, hit)
			c.costs("a known window", known, hit)
			time.Sleep(time.Minute)
			c.costs("the second window", cost{inserts: 1, updates: 2, queries: 2, parks: parks, trips: 2}, hit)
			c.costs("a known window", known, hit)
			for range 10 {
				time.Sleep(time.Minute)
				c.costs("a window of a returning key", cost{updates: 4, queries: 3, trips: 2}, hit)
				c.costs("a known window", known, hit)
			}
		})
	}
}

// docs/internals/windows.md has the figures.
func TestRequestsOfTakes(t *testing.T) {
	const denialMemory = time.Second
	three := []string{"a", "b", "x"}
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, 1, throttr.ParkingNever)
		take := func(keys ...string) func() { return func() { c.take(c.limiter, true, 1, keys...) } }
		c.costs("a take, first window of a key", cost{inserts: 1, queries: 2, trips: 2}, take("a"))
		c.costs("a take, known window", cost{updates: 1, queries: 1, trips: 1}, take("a"))
		c.costs("a take and a give-back, known window", cost{updates: 2, queries: 2, trips: 3}, func() { c.reserve("a") })
		c.costs("a take that does not fit, just read", cost{}, func() { c.take(c.limiter, false, 9, "a") })
		time.Sleep(denialMemory)
		c.costs("a take that does not fit, read a while ago", cost{queries: 1, trips: 1}, func() { c.take(c.limiter, false, 9, "a") })
		c.costs("three takes, first windows", cost{inserts: 3, queries: 12, trips: 7}, take("p", "q", "r"))
		c.costs("three takes, two known windows", cost{inserts: 1, updates: 2, queries: 6, trips: 5}, take("p", "q", "s"))
		c.take(c.other, true, 4, "a")
		c.costs("a take that does not fit any more", cost{updates: 2, queries: 1, trips: 2}, func() { c.take(c.limiter, false, 4, "a") })
	})
	for servers, trips := range map[int]int{1: 1, 2: 2} { // of two servers, the first one has one of the keys
		synctest.Test(t, func(t *testing.T) {
			c := newCosted(t, servers, throttr.ParkingNever)
			for _, key := range three {
				c.take(c.limiter, true, 1, key)
			}
			c.costs("three takes, known windows", cost{updates: 3, queries: 3, trips: trips}, func() { c.take(c.limiter, true, 1, three...) })
			c.costs("three takes and give-backs", cost{updates: 6, queries: 6, trips: trips + 2}, func() { c.reserve(three...) })
			c.costs("three takes, one does not fit, just read", cost{}, func() { c.take(c.limiter, false, 8, three...) })
			time.Sleep(denialMemory)
			c.costs("three takes, one does not fit, read a while ago", cost{queries: 3, trips: 1}, func() { c.take(c.limiter, false, 8, three...) })
			for _, key := range three {
				c.take(c.other, true, 4, key)
			}
			// On two servers, the first one refuses, and the second one is not asked.
			asked := map[int]int{1: 3, 2: 1}[servers]
			c.costs("three takes, none fits any more", cost{updates: 2 * asked, queries: asked, trips: 2}, func() { c.take(c.limiter, false, 4, three...) })
		})
	}
}

// A window can be opened if its server responds within half a guard, which is half a scale, but at
// most a second. A hit on a known window takes one round trip, one that opens a window two.
func TestWindowsOnServersFarAway(t *testing.T) {
	for _, trip := range []time.Duration{1, 20, 100, 200} {
		for _, scale := range []time.Duration{200, 500, 1000, 10_000, 60_000, 3_600_000} {
			trip, scale := trip*time.Millisecond, scale*time.Millisecond
			testkit.Bubble(t, fmt.Sprintf("%v away, scale %v", trip, scale), func(t *testing.T) {
				const limit, windows = 2, 4
				srv := testkit.InMemory(t)
				limiter := testkit.Limiter[uint16](t, srv)
				srv.Inject(mockserver.Fault{Delay: trip})
				hit := func(key string) operation {
					op := operation{kind: opHit, key: modelKey{key, scale}, n: 1, limit: limit}
					op.do(t.Context(), limiter, time.Minute)
					return op
				}
				guard := min(scale/2, time.Second)
				for i := range windows {
					hit(fmt.Sprint(i)) // so that there are connections
					first := hit("k")
					if trip >= guard/2 {
						require.ErrorContains(t, first.err, fmt.Sprintf("the server responds after %v, and a window of %v takes a response within %v",
							trip, scale, guard/2))
						require.True(t, first.notSent)
						continue
					}
					require.True(t, first.allowed, first)
					require.Equal(t, 2*trip, first.end.Sub(first.start))
					known := hit("k")
					require.True(t, known.allowed, known)
					require.Equal(t, trip, known.end.Sub(known.start))
					require.False(t, hit("k").allowed)
					if i == 0 {
						replaces(t, limiter, operation{kind: opSet, key: modelKey{"set", scale}, n: 7}, guard+6*trip)
						replaces(t, limiter, operation{kind: opReset, key: modelKey{"reset", scale}}, guard+4*trip)
					}
					time.Sleep(scale)
				}
			})
		}
	}
}

// replaces makes a Set or Reset of an open window, and requires that it takes so long and leaves a count of n.
func replaces(t *testing.T, limiter *throttr.RateLimit, op operation, takes time.Duration) {
	t.Helper()
	testkit.Hits(t, limiter, 1, op.key.key, op.key.scale, 5)
	op.do(t.Context(), limiter, time.Minute)
	require.NoError(t, op.err)
	require.Equal(t, takes, op.end.Sub(op.start), op.kind)
	n, err := limiter.Get(t.Context(), op.key.key, op.key.scale)
	require.NoError(t, err)
	require.Equal(t, op.n, n, op.kind)
}
