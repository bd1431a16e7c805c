package limiter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

// flood is a load of many clients that hit a few keys as fast as they can.
type flood struct {
	scale      time.Duration
	duration   time.Duration
	pause      time.Duration // about how long a goroutine sleeps between hits
	latency    time.Duration // of a response; 0: over TCP, in real time
	lateExpiry bool          // H2
}

const (
	floodClients    = 8
	floodGoroutines = 16 // of each client
)

// floodLimits are the limits of the keys.
var floodLimits = map[string]uint64{"a": 20, "b": 150, "c": 20, "d": 150, "e": 20}

//evidence:limits Never more than the limit in a window, and no key stays denied after it: 8 clients, four value sizes, late expiry
func TestFloodNeverExceedsTheLimit(t *testing.T) {
	for _, lateExpiry := range []bool{false, true} {
		f := flood{
			scale: time.Second, duration: max(testkit.Fewer(5*time.Second), 3*time.Second), pause: 8 * time.Millisecond, latency: time.Millisecond,
			lateExpiry: lateExpiry,
		}
		run := func(size string, test func(*testing.T, flood)) {
			t.Run(fmt.Sprintf("%s/lateExpiry=%v", size, lateExpiry), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(t, f) })
			})
		}
		run("uint8", testFlood[uint8])
		f.scale, f.duration = 300*time.Millisecond, 2*time.Second
		run("uint16", testFlood[uint16])
		if !testkit.Thorough() {
			continue
		}
		run("uint32", testFlood[uint32])
		run("uint64", testFlood[uint64])
	}
}

func TestFloodOverTCPNeverExceedsTheLimit(t *testing.T) {
	t.Run("uint8", func(t *testing.T) {
		testFlood[uint8](t, flood{scale: time.Second, duration: 2500 * time.Millisecond, lateExpiry: true})
	})
	t.Run("uint16", func(t *testing.T) {
		testFlood[uint16](t, flood{scale: time.Second, duration: 2500 * time.Millisecond, lateExpiry: true})
	})
}

// testFlood runs a flood. It requires that each granted hit has a place of its own in a window on
// the server, and that windows do not overlap. In virtual time, which does not depend on the load
// of the machine, it also requires that each window grants its limit, and that the next one opens
// without delay.
func testFlood[T codec.Value](t *testing.T, f flood) {
	virtual := f.latency > 0
	var log history[T]
	var granted operations
	opts := []mockserver.Option{
		mockserver.WithValueSize(codec.Size[T]()),
		mockserver.WithHazard(mockserver.LateExpiry, f.lateExpiry),
		mockserver.WithObserver(log.observe),
	}
	var srv *mockserver.Server
	var cfg throttr.Config
	if virtual {
		srv = testkit.InMemory(t, opts...)
		cfg = testkit.Over(srv, cfg)
		srv.Inject(mockserver.Fault{Delay: f.latency})
	} else {
		srv = mockserver.RunT(t, opts...)
		cfg.StallTimeout = time.Minute // a busy machine may let responses wait
	}
	if race.Enabled && f.pause > 0 {
		f.pause, f.duration = max(f.pause, f.scale/40), 3*f.scale
	}

	end, enough := time.Now().Add(f.duration), int(f.duration/f.scale)-1
	finished := func() bool {
		now := time.Now()
		if virtual || now.Before(end) {
			return !now.Before(end)
		}
		// A busy machine may need longer for enough windows.
		for key := range floodLimits {
			if len(log.windowsOf(modelKey{key, f.scale})) < enough {
				return now.After(end.Add(time.Minute))
			}
		}
		return true
	}
	var callers sync.WaitGroup
	for range floodClients { // they open their first windows at the same time
		backend := testkit.Connect[T](t, srv, cfg).Backend()
		limiter := testkit.NewRateLimit(backend)
		for range floodGoroutines {
			callers.Go(func() { f.hit(t, limiter, &granted, finished) })
		}
	}
	callers.Wait()

	for key, limit := range floodLimits {
		k := log.of(modelKey{key, f.scale})
		require.Empty(t, k.errors, key)
		taken, homeless := k.match(granted.of(modelKey{key, f.scale}))
		require.Empty(t, homeless, "key %s: hits that were granted without a place on the server", key)
		require.GreaterOrEqual(t, len(k.windows), enough, key)
		for i, w := range k.windows {
			require.LessOrEqual(t, taken[w], limit, "key %s, window %d", key, i)
			if i == 0 {
				continue
			}
			last := k.windows[i-1]
			require.GreaterOrEqual(t, w.start.Sub(last.start), f.scale, "key %s: windows %d and %d overlap", key, i-1, i)
			if virtual {
				require.LessOrEqual(t, w.start.Sub(last.end), 2*f.pause+10*f.latency, "key %s: no window after window %d", key, i-1)
				require.Equal(t, limit, taken[last], "key %s, window %d", key, i-1)
			}
		}
	}
	if virtual {
		testkit.RequireRemoved(t, srv, testkit.Idle[T](t, f.scale))
	}
	require.Zero(t, srv.Expired(), "records that expired on the server")
}

// hit hits all keys until the flood is finished.
func (f flood) hit(t *testing.T, limiter *throttr.RateLimit, granted *operations, finished func() bool) {
	for !finished() {
		for key, limit := range floodLimits {
			op := operation{kind: opHit, key: modelKey{key, f.scale}, n: 1, limit: limit, start: time.Now()}
			res, err := limiter.Hit(t.Context(), key, f.scale, limit)
			op.end, op.count, op.allowed = time.Now(), res.Count, res.Allowed
			if errors.Is(err, fixedwindow.ErrTooLate) && f.latency == 0 {
				continue // on a busy machine, a window may end before the answer comes: nobody was granted anything
			}
			if err != nil {
				t.Errorf("hit %s: %v", key, err)
				return
			}
			if res.Allowed {
				granted.add(op)
			} else if res.RetryAfter <= 0 || res.RetryAfter > f.scale {
				t.Errorf("hit %s: %+v", key, res)
				return
			}
		}
		if f.pause > 0 {
			time.Sleep(f.pause/2 + rand.N(f.pause))
		}
	}
}
