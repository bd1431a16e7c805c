package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// flood is a load of many clients that hit a few keys as fast as they can.
type flood struct {
	scale      time.Duration
	duration   time.Duration
	pause      time.Duration // about how long a goroutine sleeps between hits
	latency    time.Duration // of a response; 0: over TCP, in real time
	lateExpiry bool          // H2
	skew       float64       // the largest difference between clocks, in scales
}

const (
	floodClients    = 8
	floodGoroutines = 16 // of each client
)

// floodLimits are the limits of the keys.
var floodLimits = map[string]uint64{"a": 20, "b": 150, "c": 20, "d": 150, "e": 20}

//evidence:limits Never more than the limit in a window, and no key stays denied after it: 8 clients, clocks up to 0.9 scales apart, 128 goroutines, with and without late expiry
func TestFloodNeverExceedsTheLimit(t *testing.T) {
	for _, lateExpiry := range []bool{false, true} {
		for _, skew := range []float64{0.4, 0.9} {
			f := flood{
				scale: time.Second, duration: 5 * time.Second, pause: 8 * time.Millisecond, latency: time.Millisecond,
				lateExpiry: lateExpiry, skew: skew,
			}
			t.Run(fmt.Sprintf("uint8/lateExpiry=%v/skew=%v", lateExpiry, skew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testFlood[uint8](t, f) })
			})
			f.scale, f.duration = 300*time.Millisecond, 2*time.Second
			t.Run(fmt.Sprintf("uint16/lateExpiry=%v/skew=%v", lateExpiry, skew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testFlood[uint16](t, f) })
			})
		}
	}
}

//evidence:limits Never more than the limit with random scales, latencies and clocks
func TestRandomFloodsNeverExceedTheLimit(t *testing.T) {
	for range 5 {
		scale := time.Duration(2+rand.IntN(40)) * 50 * time.Millisecond
		f := flood{
			scale:    scale,
			duration: 4 * scale,
			// Short enough for all limits to be reached.
			pause:      min(time.Duration(1+rand.IntN(30))*time.Millisecond, scale/40),
			latency:    min(1+rand.N(4*time.Millisecond), scale/80),
			lateExpiry: rand.IntN(2) == 0,
			skew:       rand.Float64() * 0.9,
		}
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				switch rand.IntN(3) {
				case 0:
					testFlood[uint16](t, f)
				case 1:
					testFlood[uint32](t, f)
				default:
					testFlood[uint64](t, f)
				}
			})
		})
	}
}

//evidence:limits Never more than the limit over TCP, at full speed
func TestFloodOverTCPNeverExceedsTheLimit(t *testing.T) {
	t.Run("uint8", func(t *testing.T) {
		testFlood[uint8](t, flood{scale: time.Second, duration: 2500 * time.Millisecond, lateExpiry: true, skew: 0.4})
	})
	t.Run("uint16", func(t *testing.T) {
		testFlood[uint16](t, flood{scale: 250 * time.Millisecond, duration: 1500 * time.Millisecond, lateExpiry: true, skew: 0.4})
	})
}

// testFlood runs a flood. It requires of each window that no more hits are allowed than the limit,
// and that it opens a scale after the previous one or later. In virtual time, which does not
// depend on the load of the machine, it also requires that each window reaches its limit, and that
// the next one opens without delay.
func testFlood[T codec.Value](t *testing.T, f flood) {
	virtual := f.latency > 0
	log := newLedger()
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
		time.Sleep(f.scale * 8 / 10) // so that the clocks of the clients are in different buckets
	} else {
		srv = mockserver.RunT(t, opts...)
	}
	if testkit.Race && f.pause > 0 {
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
			if len(log.windowsOf(key)) < enough {
				return now.After(end.Add(time.Minute))
			}
		}
		return true
	}
	var callers sync.WaitGroup
	for c := range floodClients { // they open their first windows at the same time
		skew := time.Duration(f.skew * float64(f.scale) * float64(c) / (floodClients - 1))
		backend := testkit.Connect[T](t, srv, cfg).Backend(testkit.ClockAhead(skew))
		limiter := throttr.NewRateLimit(testkit.Traced(backend, log.decided))
		for range floodGoroutines {
			callers.Go(func() { f.hit(t, limiter, finished) })
		}
	}
	callers.Wait()

	for key, limit := range floodLimits {
		windows := log.windowsOf(key)
		require.GreaterOrEqual(t, len(windows), enough, key)
		for i, w := range windows {
			require.LessOrEqual(t, w.allowed, limit, "key %s, window %d", key, i)
			if i == 0 {
				continue
			}
			distance := w.opened.Sub(windows[i-1].opened)
			require.GreaterOrEqual(t, distance, f.scale, "key %s: windows %d and %d overlap", key, i-1, i)
			if virtual {
				require.LessOrEqual(t, distance, f.scale+2*f.pause+10*f.latency, "key %s: no window after window %d", key, i-1)
				require.Equal(t, limit, windows[i-1].allowed, "key %s, window %d", key, i-1)
			}
		}
	}
	if virtual {
		time.Sleep(3 * f.scale)
		require.Empty(t, testkit.Keys(srv), "records that were not removed")
	}
	require.Zero(t, srv.Expired(), "records that expired on the server")
}

// hit hits all keys until the flood is finished.
func (f flood) hit(t *testing.T, limiter *throttr.RateLimit, finished func() bool) {
	for !finished() {
		for key, limit := range floodLimits {
			res, err := limiter.Hit(t.Context(), key, f.scale, limit)
			if err != nil {
				t.Errorf("hit %s: %v", key, err)
				return
			}
			if !res.Allowed && (res.RetryAfter <= 0 || res.RetryAfter > f.scale) {
				t.Errorf("hit %s: %+v", key, res)
				return
			}
		}
		if f.pause > 0 {
			time.Sleep(f.pause/2 + rand.N(f.pause))
		}
	}
}
