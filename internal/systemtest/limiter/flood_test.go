package limiter_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
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

// flood is a test with many clients that hit a few keys as fast as they can.
type flood struct {
	scale   time.Duration
	lasts   time.Duration
	think   time.Duration // about how long a goroutine waits between two hits
	latency time.Duration // of a response
	late    bool          // H2
	skew    float64       // how far apart the clients' clocks are, in scales
}

const (
	floodClients    = 8
	floodGoroutines = 16 // per client
)

// floodLimits are the limits of the keys.
var floodLimits = map[string]uint64{"a": 20, "b": 150, "c": 20, "d": 150, "e": 20}

// ledger is what a flood has seen: for each record, by its name, when the server made it,
// how many hits were allowed in it, and when the first one was.
type ledger struct {
	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	key     string
	start   time.Time
	allowed uint64
}

func (l *ledger) entry(key string, bucket int64) *entry {
	name := key + "/" + strconv.FormatInt(bucket, 10)
	if l.entries[name] == nil {
		l.entries[name] = &entry{key: key}
	}
	return l.entries[name]
}

// executed is told of each request that the server executes.
func (l *ledger) executed(x mockserver.Exec) {
	part := strings.SplitN(x.Key, ":", 4) // rl:scale:bucket:key
	if x.Op != codec.OpInsert || !x.Status || len(part) != 4 {
		return
	}
	bucket, err := strconv.ParseInt(part[2], 10, 64)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(part[3], bucket).start = x.Time
}

// decided is told of each hit.
func (l *ledger) decided(key string, bucket int64, count, limit uint64) {
	if count > limit {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(key, bucket).allowed++
}

// windows returns the records of a key in which hits were allowed, in order.
func (l *ledger) windows(key string) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*entry
	for _, e := range l.entries {
		if e.key == key && e.allowed > 0 {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *entry) int { return a.start.Compare(b.start) })
	return out
}

func TestAFloodGetsNoMoreThanTheLimit(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, skew := range []float64{0.4, 0.9} {
			f := flood{scale: time.Second, lasts: 5 * time.Second, think: 8 * time.Millisecond, latency: time.Millisecond, late: late, skew: skew}
			t.Run(fmt.Sprintf("uint8/late=%v/skew=%v", late, skew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testFlood[uint8](t, f) })
			})
			f.scale, f.lasts = 300*time.Millisecond, 2*time.Second
			t.Run(fmt.Sprintf("uint16/late=%v/skew=%v", late, skew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testFlood[uint16](t, f) })
			})
		}
	}
}

func TestFloodsOfAnyKindGetNoMoreThanTheLimit(t *testing.T) {
	for range 5 {
		f := flood{
			scale:   time.Duration(2+rand.IntN(40)) * 50 * time.Millisecond,
			think:   time.Duration(1+rand.IntN(30)) * time.Millisecond,
			latency: 1 + rand.N(4*time.Millisecond),
			late:    rand.IntN(2) == 0,
			skew:    rand.Float64() * 0.9,
		}
		f.lasts = 4 * f.scale
		if f.think > f.scale/40 { // so that all limits are reached
			f.think = f.scale / 40
		}
		if f.latency > f.scale/80 {
			f.latency = f.scale / 80
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

func TestAFloodOverTCPGetsNoMoreThanTheLimit(t *testing.T) {
	t.Run("uint8", func(t *testing.T) {
		testFlood[uint8](t, flood{scale: time.Second, lasts: 2500 * time.Millisecond, late: true, skew: 0.4})
	})
	t.Run("uint16", func(t *testing.T) {
		testFlood[uint16](t, flood{scale: 250 * time.Millisecond, lasts: 1500 * time.Millisecond, late: true, skew: 0.4})
	})
}

func testFlood[T codec.Value](t *testing.T, f flood) {
	log := &ledger{entries: map[string]*entry{}}
	opts := []mockserver.Option{
		mockserver.WithValueSize(codec.Size[T]()),
		mockserver.WithHazard(mockserver.LateExpiry, f.late),
		mockserver.WithObserver(log.executed),
	}
	var cfg throttr.Config
	if f.latency > 0 {
		opts = append(opts, mockserver.WithAddr("memory", "flood:1"))
	}
	srv := mockserver.RunT(t, opts...)
	if f.latency > 0 {
		srv.Inject(mockserver.Fault{Delay: f.latency})
		<-time.After(f.scale * 8 / 10) // the clients' clocks are in different buckets
		cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) }
	}

	if testkit.Race && f.think > 0 {
		f.think, f.lasts = max(f.think, f.scale/40), 3*f.scale
	}
	virtual := f.latency > 0
	end, enough := time.Now().Add(f.lasts), int(f.lasts/f.scale)-1
	shutOut := func(key string) bool { return len(log.windows(key)) < enough }
	keys := slices.Collect(maps.Keys(floodLimits))
	over := func() bool {
		now := time.Now()
		if virtual || now.Before(end) {
			return !now.Before(end)
		}
		// A busy machine may need longer.
		return now.After(end.Add(time.Minute)) || !slices.ContainsFunc(keys, shutOut)
	}
	var hits sync.WaitGroup
	for i := range floodClients { // all open their windows at the same instant
		client := testkit.Connect[T](t, srv, cfg)
		skew := time.Duration(f.skew * float64(f.scale) * float64(i) / (floodClients - 1))
		backend := client.Backend(throttr.WithClock(func() time.Time { return time.Now().Add(skew) }))
		limiter := throttr.NewRateLimit(testkit.Traced(backend, log.decided))
		for range floodGoroutines {
			hits.Go(func() { f.hit(t, limiter, over) })
		}
	}
	hits.Wait()

	for key, limit := range floodLimits {
		windows := log.windows(key)
		require.GreaterOrEqual(t, len(windows), enough, key)
		for i, w := range windows {
			require.LessOrEqual(t, w.allowed, limit, "key %s, window %d", key, i)
			if i == 0 {
				continue
			}
			apart := w.start.Sub(windows[i-1].start)
			require.GreaterOrEqual(t, apart, f.scale, "key %s: windows %d and %d overlap", key, i-1, i)
			if virtual { // no load on the machine shows
				require.LessOrEqual(t, apart, f.scale+2*f.think+10*f.latency, "key %s: shut out after window %d", key, i-1)
				require.Equal(t, limit, windows[i-1].allowed, "key %s, window %d", key, i-1)
			}
		}
	}
	if virtual {
		<-time.After(3 * f.scale)
		require.Empty(t, testkit.Keys(srv), "records that were not removed")
	}
	require.Zero(t, srv.Expired(), "records that expired on the server")
}

// hit hits all keys until it is over.
func (f flood) hit(t *testing.T, limiter *throttr.RateLimit, over func() bool) {
	for !over() {
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
		if f.think > 0 {
			<-time.After(f.think/2 + rand.N(f.think))
		}
	}
}
