package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	limitcheck "github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

var aligned = throttr.WithAlgorithm(throttr.AlignedWindow)

func TestFloodNeverExceedsTheLimitOfAnAlignedWindow(t *testing.T) {
	for _, lateExpiry := range []bool{false, true} {
		for name, opts := range map[string][]throttr.BackendOption{
			"default":            nil,
			"no denial memory":   {throttr.WithDenialMemory(-1)},
			"long denial memory": {throttr.WithDenialMemory(time.Hour)},
		} {
			t.Run(fmt.Sprintf("uint8/lateExpiry=%v/%s", lateExpiry, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAlignedFlood[uint8](t, time.Second, lateExpiry, opts) })
			})
			if testing.Short() {
				continue
			}
			t.Run(fmt.Sprintf("uint16/lateExpiry=%v/%s", lateExpiry, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAlignedFlood[uint16](t, 400*time.Millisecond, lateExpiry, opts) })
			})
		}
		t.Run(fmt.Sprintf("uint64/lateExpiry=%v", lateExpiry), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAlignedFlood[uint64](t, 300*time.Millisecond+1, lateExpiry, nil) })
		})
	}
}

// testAlignedFlood lets clients hit aligned windows. Each client has a clock of its own, and the
// clocks differ by most of a scale. Each bucket has one record, which is removed after the last
// client has left the bucket.
func testAlignedFlood[T codec.Value](t *testing.T, scale time.Duration, lateExpiry bool, opts []throttr.BackendOption) {
	const clients, goroutines, buckets, skew = 6, 3, 5, 0.95
	limits := map[string]uint64{"a": 10, "b": 60}
	var log history[T]
	var granted operations
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithHazard(mockserver.LateExpiry, lateExpiry),
		mockserver.WithObserver(log.observe))
	srv.Inject(mockserver.Fault{Delay: scale / 400})
	time.Sleep(rand.N(scale))
	start, end := time.Now(), time.Now().Add(buckets*scale)
	var callers sync.WaitGroup
	for c := range clients {
		ahead := time.Duration(skew * float64(scale) * float64(c) / (clients - 1))
		clock := func() time.Time { return time.Now().Add(ahead) }
		backend := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{})).Backend(append(opts, throttr.WithClock(clock))...)
		limiter := testkit.NewRateLimit(backend, aligned)
		for range goroutines {
			callers.Go(func() {
				for time.Now().Before(end) {
					for key, limit := range limits {
						op := operation{kind: opHit, key: modelKey{key, scale}, n: 1, limit: limit, start: time.Now()}
						before := clock()
						res, err := limiter.Hit(t.Context(), key, scale, limit)
						if err != nil {
							t.Errorf("hit %s: %v", key, err)
							return
						}
						op.end, op.count, op.allowed = time.Now(), res.Count, res.Allowed
						granted.add(op)
						latest := limitcheck.AlignedStart(clock(), scale).Add(scale)
						if res.ResetAt.Before(before) || res.ResetAt.After(latest) || res.RetryAfter > scale {
							t.Errorf("hit %s at %v: %+v", key, before, res)
						}
					}
					time.Sleep(rand.N(scale / 40))
				}
			})
		}
	}
	callers.Wait()
	for key, limit := range limits {
		k := log.of(modelKey{key, scale})
		require.Empty(t, k.errors, key)
		taken, homeless := k.match(granted.of(modelKey{key, scale}))
		require.Empty(t, homeless, "key %s: hits that were granted without a place on the server", key)
		require.GreaterOrEqual(t, len(k.windows), buckets-1, "key %s: buckets without a window", key)
		// In these buckets, all clients made hits.
		first, last := start.UnixNano()/int64(scale)+2, end.UnixNano()/int64(scale)-1
		inserted := map[int64]bool{}
		for _, w := range k.windows {
			require.LessOrEqual(t, taken[w], limit, "key %s, bucket %d", key, w.bucket)
			if w.bucket >= first && w.bucket <= last {
				require.Equal(t, limit, taken[w], "key %s, bucket %d", key, w.bucket)
			}
			require.False(t, inserted[w.bucket], "key %s, bucket %d: the record was inserted again after its removal", key, w.bucket)
			inserted[w.bucket] = true
		}
	}
	testkit.RequireRemoved(t, srv, 5*scale+time.Second)
}

func TestAlignedWindowsEndWithTheirBucket(t *testing.T) {
	for _, start := range []time.Time{
		time.Unix(0, 0), time.Unix(-3600, 0), time.Date(1901, 5, 5, 5, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithValueSize(8))
			var now atomic.Pointer[time.Time]
			set := func(to time.Time) { now.Store(&to) }
			clock := throttr.WithClock(func() time.Time { return *now.Load() })
			set(start)
			l, other := testkit.LimiterOf[uint64](t, srv, throttr.AlignedWindow, clock), testkit.LimiterOf[uint64](t, srv, throttr.AlignedWindow, clock)
			for range 3 {
				end := now.Load().Add(time.Minute)
				res, err := l.Hit(t.Context(), "k", time.Minute, 3)
				require.NoError(t, err)
				require.Equal(t, uint64(1), res.Count, "%v", end)
				require.WithinDuration(t, end, res.ResetAt, 0)
				set(end.Add(-1))
				require.Equal(t, 2, testkit.Hits(t, other, 5, "k", time.Minute, 3), "the last nanosecond of the bucket")
				res, err = l.Hit(t.Context(), "k", time.Minute, 3)
				require.NoError(t, err)
				require.False(t, res.Allowed)
				require.Equal(t, time.Duration(1), res.RetryAfter)
				set(end)
			}
		})
	}
}

func TestAlignedRecordOutlivesItsWindowForClientsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		sleepUntilBucket(time.Second)
		time.Sleep(100 * time.Millisecond)
		ahead := testkit.LimiterOf[uint16](t, srv, throttr.AlignedWindow, testkit.ClockAhead(950*time.Millisecond)) // in the next bucket
		behind := testkit.LimiterOf[uint16](t, srv, throttr.AlignedWindow)
		require.Equal(t, 5, testkit.Hits(t, ahead, 9, "k", time.Second, 5))
		require.Equal(t, 5, testkit.Hits(t, behind, 9, "k", time.Second, 5))
		time.Sleep(900 * time.Millisecond) // behind enters the bucket whose limit ahead has reached
		require.Zero(t, testkit.Hits(t, behind, 9, "k", time.Second, 5))
		time.Sleep(100 * time.Millisecond) // ahead enters the bucket after it
		require.Equal(t, 5, testkit.Hits(t, ahead, 9, "k", time.Second, 5))
		require.Zero(t, testkit.Hits(t, behind, 9, "k", time.Second, 5))
		time.Sleep(899 * time.Millisecond)
		require.Zero(t, testkit.Hits(t, behind, 9, "k", time.Second, 5), "the last millisecond of its bucket")
		testkit.RequireRemoved(t, srv, 5*time.Second)
	})
}

func TestAlignedRecordOutlivesTheClientThatInsertedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		sleepUntilBucket(time.Second)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		ahead := testkit.NewRateLimit(client.Backend(testkit.ClockAhead(900*time.Millisecond)), aligned)
		behind := testkit.LimiterOf[uint16](t, srv, throttr.AlignedWindow)
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 5, testkit.Hits(t, ahead, 9, "k", time.Second, 5)) // in the next bucket
		time.Sleep(1300 * time.Millisecond)                                 // ahead has left that bucket, behind is in it
		var closing sync.WaitGroup
		closing.Go(func() { client.Close() }) // waits until the window is over for all
		time.Sleep(time.Millisecond)
		require.Zero(t, testkit.Hits(t, behind, 9, "k", time.Second, 5))
		closing.Wait()
	})
}

func TestAlignedRecordWithACoarseTTLOutlivesItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 127 * time.Second // the TTL is two scales and a margin: 255 s, the longest in seconds
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		ahead := testkit.LimiterOf[uint8](t, srv, throttr.AlignedWindow, testkit.ClockAhead(120*time.Second))
		behind := testkit.LimiterOf[uint8](t, srv, throttr.AlignedWindow)
		sleepUntilBucket(scale) // meanwhile the server is parked: otherwise the scale is refused
		require.Equal(t, 5, testkit.Hits(t, behind, 9, "k", scale, 5))
		require.Zero(t, testkit.Hits(t, ahead, 1, "k", scale, 5))
		time.Sleep(10 * time.Second)
		require.Equal(t, 5, testkit.Hits(t, ahead, 9, "k", scale, 5)) // in the next bucket
		require.Zero(t, testkit.Hits(t, behind, 9, "k", scale, 5))
		time.Sleep(scale + 116*time.Second) // the last second of that bucket for behind
		require.Zero(t, testkit.Hits(t, behind, 9, "k", scale, 5))
		time.Sleep(time.Second)
		testkit.RequireRemoved(t, srv, scale+2*time.Second)
	})
}

// Set and Reset insert several records under one name. All of them are removed.
func TestSetsAndResetsOfAlignedWindowsLeaveNoRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		var backends []*throttr.ServerBackend
		for c := range 3 {
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
			backends = append(backends, client.Backend(testkit.ClockAhead(time.Duration(c)*300*time.Millisecond)))
		}
		var callers sync.WaitGroup
		for i := range 30 {
			limiter := testkit.NewRateLimit(backends[i%3], aligned)
			callers.Go(func() {
				for n := range 100 {
					var err error
					switch n % 4 {
					case 0:
						_, err = limiter.Set(t.Context(), "k", time.Second, 2)
					case 1:
						err = limiter.Reset(t.Context(), "k", time.Second)
					default:
						_, err = limiter.Hit(t.Context(), "k", time.Second, 5)
					}
					if err != nil {
						t.Error(err)
					}
					time.Sleep(rand.N(100 * time.Millisecond))
				}
			})
		}
		callers.Wait()
		testkit.RequireRemoved(t, srv, 5*time.Second)
		for _, b := range backends {
			require.Zero(t, b.Records().Records)
			require.LessOrEqual(t, b.Stats().Windows, 1, "a window of another client is remembered until there is no room")
		}
	})
}
