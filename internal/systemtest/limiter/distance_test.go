package limiter_test

import (
	"context"
	"fmt"
	"strings"
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

// farScales are the scales for which servers are tried that are far away.
var farScales = []time.Duration{
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
}

// A window can be opened if its server responds within half a guard, which is half a scale, but at
// most a second. A hit on a known window takes one round trip, one that opens a window two.
//
//evidence:limits Servers 1 to 200 ms away, scales of 200 ms to 1 h: exact, or an error that names the time
func TestWindowsOnServersFarAway(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		for _, scale := range farScales {
			t.Run(fmt.Sprintf("%v away, scale %v", trip, scale), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testFarAway[uint16](t, trip, scale) })
			})
		}
	}
}

func testFarAway[T codec.Value](t *testing.T, trip, scale time.Duration) {
	const limit, windows = 5, 4
	var log history[T]
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(log.observe))
	client := testkit.Connect[T](t, srv, throttr.Config{Dial: testkit.Far(srv, trip).Dial})
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

// A server responds later than a guard for some seconds. Known windows go on counting. Hits that
// need a new window fail, and their policy decides. After that, all goes on by itself. The server
// executes each request at once, or the requests that the client has given up get lost.
func TestOverloadedServer(t *testing.T) {
	for _, name := range []string{"responses are late", "requests are late"} {
		t.Run(name, func(t *testing.T) {
			t.Run("uint8", func(t *testing.T) { testOverload[uint8](t, name == "requests are late") })
			t.Run("uint64", func(t *testing.T) { testOverload[uint64](t, name == "requests are late") })
		})
	}
}

func testOverload[T codec.Value](t *testing.T, there bool) {
	synctest.Test(t, func(t *testing.T) {
		const limit, delay, overload = 100, 1300 * time.Millisecond, 8 * time.Second
		var log history[T]
		srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(log.observe))
		distance := testkit.Far(srv, 2*time.Millisecond)
		var granted operations
		var stop atomic.Bool
		var callers sync.WaitGroup
		long, short := modelKey{"known", 20 * time.Second}, modelKey{"new", time.Second}
		var mu sync.Mutex // guards succeeded, failed and late
		succeeded, failed := map[modelKey]int{}, map[modelKey]int{}
		var late time.Time // of the last failure
		var limiters []*throttr.RateLimit
		for range 4 {
			client := testkit.Connect[T](t, srv, throttr.Config{Dial: distance.Dial})
			backend := client.Backend()
			limiter := testkit.NewRateLimit(backend)
			limiters = append(limiters, limiter)
			denying := testkit.NewRateLimit(backend, throttr.WithPolicy(throttr.DenyHits))
			hit := func(key modelKey) {
				op := operation{kind: opHit, key: key, n: 1, limit: limit}
				op.do(t.Context(), limiter, time.Minute)
				granted.add(op)
				mu.Lock()
				if op.err == nil {
					succeeded[key]++
				} else {
					failed[key]++
					late = op.start
				}
				mu.Unlock()
				if op.err == nil {
					return
				}
				if text := op.err.Error(); !strings.Contains(text, "takes a response within") && !strings.Contains(text, "was over by then") {
					t.Errorf("an error that does not say why: %v", op.err)
				}
				res, err := denying.Hit(t.Context(), key.key, key.scale, limit)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed && res.Degraded {
					t.Errorf("%+v", res)
				}
			}
			for _, key := range []modelKey{long, short} {
				callers.Go(func() {
					for !stop.Load() {
						hit(key)
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
		}
		defer stop.Store(true)
		time.Sleep(3 * time.Second)
		require.Empty(t, failed)
		slow := &distance.Back
		if there {
			slow = &distance.There
		}
		fast := slow.Swap(int64(delay))
		mu.Lock()
		clear(succeeded)
		mu.Unlock()
		time.Sleep(overload)
		mu.Lock()
		t.Logf("during %v: %d hits on a known window, %d failed; %d on short windows, %d failed", overload,
			succeeded[long], failed[long], succeeded[short], failed[short])
		require.Zero(t, failed[long], "known windows go on counting")
		require.Positive(t, succeeded[long])
		require.Positive(t, failed[short])
		clear(succeeded)
		mu.Unlock()
		slow.Store(fast)
		recovered := time.Now()
		time.Sleep(6 * time.Second)
		stop.Store(true)
		callers.Wait()
		require.Less(t, late.Sub(recovered), 5*time.Second)
		require.Greater(t, succeeded[short], 40)
		for _, key := range []modelKey{long, short} {
			k := log.of(key)
			require.Empty(t, k.errors)
			_, homeless := k.match(granted.of(key))
			require.Empty(t, homeless)
		}
		for _, l := range limiters {
			_, err := l.Hit(context.Background(), "after", time.Second, limit)
			require.NoError(t, err)
		}
		testkit.RequireRemoved(t, srv, testkit.Idle[T](t, 20*time.Second))
	})
}
