package limiter_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// farScales are the scales for which servers are tried that are far away.
var farScales = []time.Duration{
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
}

// A window can be opened if its server responds within half a guard, which is half a scale, but at
// most a second. A hit on a known window takes one round trip, one that opens a window two.
func TestWindowsOnServersFarAway(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		for _, scale := range farScales {
			t.Run(fmt.Sprintf("%v away, scale %v", trip, scale), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testFarAway(t, trip, scale) })
			})
		}
	}
}

func testFarAway(t *testing.T, trip, scale time.Duration) {
	const limit, windows = 5, 4
	var log history[uint16]
	srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
	client := testkit.Connect[uint16](t, srv, throttr.Config{Dial: farAway(srv, trip).dial})
	limiter := testkit.NewRateLimit(client.Backend())
	key := modelKey{"k", scale}
	var granted operations
	hit := func(key modelKey) operation {
		op := operation{kind: opHit, key: key, n: 1, limit: limit}
		op.do(t.Context(), limiter, time.Minute)
		granted.add(op)
		return op
	}
	works := trip < min(scale/2, time.Second)/2
	for i := range windows {
		hit(modelKey{fmt.Sprint(i), scale}) // so that there are connections
		first := hit(key)
		if !works {
			require.ErrorContains(t, first.err, fmt.Sprintf("the server responds after %v, and a window of %v takes a response within %v",
				trip, scale, min(scale/2, time.Second)/2))
			require.True(t, first.notSent)
			require.Empty(t, log.windowsOf(key))
			continue
		}
		require.NoError(t, first.err)
		known := hit(key)
		require.NoError(t, known.err)
		if i == windows-1 {
			t.Logf("new window %v, known window %v", first.end.Sub(first.start), known.end.Sub(known.start))
		}
		require.Equal(t, 2*trip, first.end.Sub(first.start))
		require.Equal(t, trip, known.end.Sub(known.start))
		if i == 0 {
			guard := min(scale/2, time.Second)
			replaces(t, limiter, operation{kind: opSet, key: modelKey{"set", scale}, n: 7}, guard+6*trip)
			replaces(t, limiter, operation{kind: opReset, key: modelKey{"reset", scale}}, guard+4*trip)
		}
		for range limit {
			hit(key)
		}
		time.Sleep(scale)
	}
	k := log.of(key)
	require.Empty(t, k.errors)
	taken, homeless := k.match(granted.of(key))
	require.Empty(t, homeless)
	for _, w := range k.windows {
		require.LessOrEqual(t, taken[w], uint64(limit))
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

// A server responds later than a guard for some seconds. Known windows go on counting. Hits that
// need a new window fail, and their policy decides. After that, all goes on by itself. The server
// executes each request at once, or the requests that the client has given up get lost.
func TestOverloadedServer(t *testing.T) {
	t.Run("responses are late", func(t *testing.T) { testOverload(t, false) })
	t.Run("requests are late", func(t *testing.T) { testOverload(t, true) })
}

func testOverload(t *testing.T, there bool) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		var log history[uint16]
		srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
		distance := farAway(srv, 2*time.Millisecond)
		backend := testkit.Connect[uint16](t, srv, throttr.Config{Dial: distance.dial}).Backend()
		limiter, denying := testkit.NewRateLimit(backend), testkit.NewRateLimit(backend, throttr.WithPolicy(throttr.DenyHits))
		long, short := modelKey{"known", 20 * time.Second}, modelKey{"new", time.Second}
		var all operations
		hits := func(d time.Duration) (failed map[modelKey]int) { // of 4 callers for each key
			failed = map[modelKey]int{}
			var mu sync.Mutex // guards failed
			var callers sync.WaitGroup
			for i := range 8 {
				callers.Go(func() {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
						op := operation{kind: opHit, key: []modelKey{long, short}[i%2], n: 1, limit: limit}
						op.do(t.Context(), limiter, time.Minute)
						all.add(op)
						if op.err == nil {
							continue
						}
						if text := op.err.Error(); !strings.Contains(text, "takes a response within") && !strings.Contains(text, "was over by then") {
							t.Errorf("an error that does not say why: %v", op.err)
						}
						res, err := denying.Hit(t.Context(), op.key.key, op.key.scale, limit)
						if err != nil || res.Allowed && res.Degraded {
							t.Errorf("%+v, %v", res, err)
						}
						mu.Lock()
						failed[op.key]++
						mu.Unlock()
					}
				})
			}
			callers.Wait()
			return failed
		}
		require.Empty(t, hits(3*time.Second))
		slow := &distance.back
		if there {
			slow = &distance.there
		}
		fast := slow.Swap(int64(1300 * time.Millisecond))
		failed := hits(8 * time.Second)
		require.Zero(t, failed[long], "known windows go on counting")
		require.Positive(t, failed[short])
		slow.Store(fast)
		hits(5 * time.Second)
		require.Empty(t, hits(3*time.Second))
		for _, key := range []modelKey{long, short} {
			k := log.of(key)
			require.Empty(t, k.errors)
			_, homeless := k.match(all.of(key))
			require.Empty(t, homeless)
		}
		requireRemoved(t, srv, idle[uint16](t, 20*time.Second))
	})
}
