package limiter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

// flood is a load of many clients that hit a few keys as fast as they can.
type flood struct {
	scale, duration time.Duration
	lateExpiry      bool // H2
}

const (
	floodClients    = 8
	floodGoroutines = 16 // of each client
)

// floodLimits are the limits of the keys. One is the highest of the smallest counters, which must not wrap (H3).
var floodLimits = map[string]uint64{"a": 20, "b": 150, "c": 20, "d": 150, "e": math.MaxUint8}

func TestFloodNeverExceedsTheLimit(t *testing.T) {
	for _, lateExpiry := range []bool{false, true} {
		f := flood{time.Second, max(testkit.Fewer(5*time.Second), 3*time.Second), lateExpiry}
		run := func(size string, test func(*testing.T, flood)) {
			testkit.Bubble(t, fmt.Sprintf("%s/lateExpiry=%v", size, lateExpiry), func(t *testing.T) { test(t, f) })
		}
		run("uint8", testFlood[uint8])
		if !testkit.Thorough() && !lateExpiry {
			continue
		}
		f.scale, f.duration = 300*time.Millisecond, 2*time.Second
		run("uint16", testFlood[uint16])
		if !testkit.Thorough() {
			continue
		}
		run("uint32", testFlood[uint32])
		run("uint64", testFlood[uint64])
	}
}

// testFlood runs a flood. It requires that each granted hit has a place of its own in a window on
// the server, that windows do not overlap, that each window grants its limit, and that the next one opens
// without delay.
func testFlood[T codec.Value](t *testing.T, f flood) {
	const latency = time.Millisecond
	var log history[T]
	var granted operations
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(log.observe),
		mockserver.WithHazard(mockserver.LateExpiry, f.lateExpiry))
	srv.Inject(mockserver.Fault{Delay: latency})
	pause := 8 * time.Millisecond
	if race.Enabled {
		pause, f.duration = max(pause, f.scale/40), 3*f.scale
	}
	var callers sync.WaitGroup
	for range floodClients { // they open their first windows at the same time
		limiter := testkit.NewRateLimit(testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{})).Backend())
		for range floodGoroutines {
			callers.Go(func() {
				for end := time.Now().Add(f.duration); time.Now().Before(end); time.Sleep(pause/2 + rand.N(pause)) {
					for key, limit := range floodLimits {
						op := operation{kind: opHit, key: modelKey{key, f.scale}, n: 1, limit: limit}
						op.do(t.Context(), limiter, time.Minute)
						if op.err != nil {
							t.Error(op)
						}
						granted.add(op)
					}
				}
			})
		}
	}
	callers.Wait()

	for key, limit := range floodLimits {
		k := log.of(modelKey{key, f.scale})
		require.Empty(t, k.errors, key)
		taken, homeless := k.match(granted.all[modelKey{key, f.scale}])
		require.Empty(t, homeless, "key %s: hits that were granted without a place on the server", key)
		require.GreaterOrEqual(t, len(k.windows), int(f.duration/f.scale)-1, key)
		for i, w := range k.windows {
			require.LessOrEqual(t, taken[w], limit, "key %s, window %d", key, i)
			if i == 0 {
				continue
			}
			last := k.windows[i-1]
			require.GreaterOrEqual(t, w.start.Sub(last.start), f.scale, "key %s: windows %d and %d overlap", key, i-1, i)
			require.LessOrEqual(t, w.start.Sub(last.end), 2*pause+10*latency, "key %s: no window after window %d", key, i-1)
			require.Equal(t, limit, taken[last], "key %s, window %d", key, i-1)
		}
	}
	requireRemoved(t, srv, idle[T](t, f.scale))
	require.Zero(t, srv.Expired(), "records that expired on the server")
}
