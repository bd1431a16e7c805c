package limiter_test

import (
	"fmt"
	"math/rand/v2"
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
	windows "github.com/throttr-go/throttr/window"
)

var aligned = throttr.WithAlgorithm(windows.Aligned)

// alignedLedger counts, for each record, how many hits were allowed in it, and how often it
// was made.
type alignedLedger struct {
	mu      sync.Mutex
	allowed map[string]map[int64]uint64 // by key and bucket
	made    map[string]int              // by name
}

func newAlignedLedger() *alignedLedger {
	return &alignedLedger{allowed: map[string]map[int64]uint64{}, made: map[string]int{}}
}

func (l *alignedLedger) decided(key string, bucket int64, count, limit uint64) {
	if count > limit {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.allowed[key] == nil {
		l.allowed[key] = map[int64]uint64{}
	}
	l.allowed[key][bucket]++
}

func (l *alignedLedger) executed(x mockserver.Exec) {
	if x.Op != codec.OpInsert || !x.Status || !strings.HasPrefix(x.Key, "al:") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[x.Key]++
}

func TestAlignedFloodsGetNoMoreThanTheLimitInABucket(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, opts := range [][]throttr.BackendOption{
			nil,
			{throttr.WithoutCoalescing()},
			{throttr.WithDenialMemory(-1)},
			{throttr.WithDenialMemory(time.Hour)},
		} {
			t.Run(fmt.Sprintf("uint8, late=%v, %d", late, len(opts)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAlignedFlood[uint8](t, time.Second, late, opts) })
			})
			t.Run(fmt.Sprintf("uint16, late=%v, %d", late, len(opts)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAlignedFlood[uint16](t, 400*time.Millisecond, late, opts) })
			})
		}
		t.Run(fmt.Sprintf("uint64, late=%v", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAlignedFlood[uint64](t, 300*time.Millisecond+1, late, nil) })
		})
	}
}

// Clients whose clocks differ by most of a scale each go by their own. Whatever bucket they
// are in, its one record lasts until the last of them has left it, and then goes.
func testAlignedFlood[T codec.Value](t *testing.T, scale time.Duration, late bool, opts []throttr.BackendOption) {
	const clients, goroutines, buckets, skew = 6, 3, 5, 0.95
	limits := map[string]uint64{"a": 10, "b": 60}
	log := newAlignedLedger()
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithHazard(mockserver.LateExpiry, late),
		mockserver.WithObserver(log.executed))
	srv.Inject(mockserver.Fault{Delay: scale / 400})
	time.Sleep(rand.N(scale))
	begun, end := time.Now(), time.Now().Add(buckets*scale)
	var all sync.WaitGroup
	for c := range clients {
		lead := time.Duration(skew * float64(scale) * float64(c) / (clients - 1))
		clock := func() time.Time { return time.Now().Add(lead) }
		backend := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{})).Backend(append(opts, aligned, throttr.WithClock(clock))...)
		limiter := throttr.NewRateLimit(testkit.Traced(backend, log.decided))
		for range goroutines {
			all.Go(func() {
				for time.Now().Before(end) {
					for key, limit := range limits {
						before := clock()
						res, err := limiter.Hit(t.Context(), key, scale, limit)
						if err != nil {
							t.Errorf("hit %s: %v", key, err)
							return
						}
						if res.ResetAt.Before(before) || res.ResetAt.After(bucketEnd(clock(), scale)) || res.RetryAfter > scale {
							t.Errorf("hit %s at %v: %+v", key, before, res)
						}
					}
					time.Sleep(rand.N(scale / 40))
				}
			})
		}
	}
	all.Wait()
	for key, limit := range limits {
		first, last := begun.UnixNano()/int64(scale)+1, end.UnixNano()/int64(scale)-1
		for bucket, allowed := range log.allowed[key] {
			require.LessOrEqual(t, allowed, limit, "key %s, bucket %d", key, bucket)
			if bucket > first && bucket <= last { // all clients were there
				require.Equal(t, limit, allowed, "key %s, bucket %d", key, bucket)
			}
		}
		require.GreaterOrEqual(t, len(log.allowed[key]), buckets-1, "buckets are lost")
	}
	for name, n := range log.made {
		require.Equal(t, 1, n, "%s was made again after it was removed", name)
	}
	testkit.RequireRemoved(t, srv, 5*scale+time.Second)
}

// bucketEnd returns the end of the aligned window of an instant after 1970.
func bucketEnd(at time.Time, scale time.Duration) time.Time {
	return windows.Aligned.Start(at, scale).Add(scale)
}

func TestAlignedWindowsAtTheEdgesOfBuckets(t *testing.T) {
	for _, start := range []time.Time{
		time.Unix(0, 0), time.Unix(-3600, 0), time.Date(1901, 5, 5, 5, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithValueSize(8))
			var now atomic.Pointer[time.Time]
			set := func(at time.Time) { now.Store(&at) }
			clock := throttr.WithClock(func() time.Time { return *now.Load() })
			set(start)
			l, other := testkit.Limiter[uint64](t, srv, aligned, clock), testkit.Limiter[uint64](t, srv, aligned, clock)
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

func TestARecordOfAnAlignedWindowOutlivesItForClientsThatLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		time.Sleep(time.Second - time.Duration(time.Now().UnixNano())%time.Second) // a bucket begins
		time.Sleep(100 * time.Millisecond)
		fast := testkit.Limiter[uint16](t, srv, aligned, testkit.ClockAhead(950*time.Millisecond)) // in the next bucket already
		slow := testkit.Limiter[uint16](t, srv, aligned)
		require.Equal(t, 5, testkit.Hits(t, fast, 9, "k", time.Second, 5))
		require.Equal(t, 5, testkit.Hits(t, slow, 9, "k", time.Second, 5), "its own bucket")
		time.Sleep(900 * time.Millisecond) // slow enters the bucket that fast has used up
		require.Zero(t, testkit.Hits(t, slow, 9, "k", time.Second, 5))
		time.Sleep(100 * time.Millisecond) // fast enters the next
		require.Equal(t, 5, testkit.Hits(t, fast, 9, "k", time.Second, 5))
		require.Zero(t, testkit.Hits(t, slow, 9, "k", time.Second, 5))
		time.Sleep(899 * time.Millisecond)
		require.Zero(t, testkit.Hits(t, slow, 9, "k", time.Second, 5), "the last millisecond")
		testkit.RequireRemoved(t, srv, 5*time.Second)
	})
}

func TestBackendsOfBothAlgorithmsDoNotMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(8)) // of which both algorithms use the same unit
		client := testkit.Connect[uint64](t, srv, testkit.Over(srv, throttr.Config{}))
		a, k := throttr.NewRateLimit(client.Backend(aligned)), throttr.NewRateLimit(client.Backend())
		for _, key := range []string{"", "k", strings.Repeat("k", 100)} {
			require.Equal(t, 3, testkit.Hits(t, a, 5, key, time.Minute, 3))
			require.Equal(t, 4, testkit.Hits(t, k, 6, key, time.Minute, 4))
			n, err := a.Delete(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Zero(t, testkit.Hits(t, k, 1, key, time.Minute, 4))
			require.Equal(t, 3, testkit.Hits(t, a, 5, key, time.Minute, 3))
		}
		testkit.RequireRemoved(t, srv, 5*time.Minute)
	})
}

// Sets and Resets put several records under one name; the last of them is removed, too.
func TestSetsAndResetsOfAlignedWindowsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		var backends []*throttr.ServerBackend[uint16]
		var limiters []*throttr.RateLimit
		for c := range 3 {
			b := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(aligned, testkit.ClockAhead(time.Duration(c)*300*time.Millisecond))
			backends, limiters = append(backends, b), append(limiters, throttr.NewRateLimit(b))
		}
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				l := limiters[i%3]
				for n := range 100 {
					var err error
					switch n % 4 {
					case 0:
						_, err = l.Set(t.Context(), "k", time.Second, 2)
					case 1:
						err = l.Reset(t.Context(), "k", time.Second)
					default:
						_, err = l.Hit(t.Context(), "k", time.Second, 5)
					}
					if err != nil {
						t.Error(err)
					}
					time.Sleep(rand.N(100 * time.Millisecond))
				}
			})
		}
		all.Wait()
		testkit.RequireRemoved(t, srv, 5*time.Second)
		for _, b := range backends {
			require.Zero(t, b.Stats().Records)
			require.LessOrEqual(t, b.Stats().Windows, 1, "a window that was joined is remembered until there is no room")
		}
	})
}

// The record of a bucket that a client has left is still needed by those whose clocks are
// behind: neither a Close nor a coarse TTL may end it.
func TestARecordOfAnAlignedWindowOutlivesTheClientThatOpenedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		time.Sleep(time.Second - time.Duration(time.Now().UnixNano())%time.Second) // a bucket begins
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		fast := throttr.NewRateLimit(client.Backend(aligned, testkit.ClockAhead(900*time.Millisecond)))
		slow := testkit.Limiter[uint16](t, srv, aligned)
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 5, testkit.Hits(t, fast, 9, "k", time.Second, 5)) // in the next bucket
		time.Sleep(1300 * time.Millisecond)                                // fast is beyond it, slow is in it
		var closing sync.WaitGroup
		closing.Go(func() { client.Close() }) // waits until the window is over for all
		time.Sleep(time.Millisecond)
		require.Zero(t, testkit.Hits(t, slow, 9, "k", time.Second, 5))
		closing.Wait()
	})
}

func TestARecordOfAnAlignedWindowOutlivesItInACoarseUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 127 * time.Second // 254 s, and a margin of one
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		time.Sleep(scale - time.Duration(time.Now().UnixNano())%scale)
		fast := testkit.Limiter[uint8](t, srv, aligned, testkit.ClockAhead(120*time.Second))
		slow := testkit.Limiter[uint8](t, srv, aligned)
		require.Equal(t, 5, testkit.Hits(t, slow, 9, "k", scale, 5))
		require.Zero(t, testkit.Hits(t, fast, 1, "k", scale, 5))
		time.Sleep(10 * time.Second)
		require.Equal(t, 5, testkit.Hits(t, fast, 9, "k", scale, 5))
		require.Zero(t, testkit.Hits(t, slow, 9, "k", scale, 5))
		time.Sleep(scale + 116*time.Second) // the last second of slow in that bucket
		require.Zero(t, testkit.Hits(t, slow, 9, "k", scale, 5))
		time.Sleep(time.Second)
		testkit.RequireRemoved(t, srv, scale+2*time.Second)
	})
}

// A name whose record is dead, but kept for its grace (H1), is of no use to a Set: it goes on
// to the next bucket, or fails where there is none. Nothing is owned in vain.
func TestASetOnANameInItsGraceOwnsNothingInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		for algorithm, prefix := range map[windows.Algorithm]string{windows.PerKey: "rl", windows.Aligned: "al"} {
			backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithAlgorithm(algorithm))
			l := throttr.NewRateLimit(backend)
			srv.Set(fmt.Sprintf("%s:1m0s:%d:k", prefix, time.Now().UnixNano()/int64(time.Minute)), 5, time.Millisecond)
			time.Sleep(time.Second)
			_, err := l.Set(t.Context(), "k", time.Minute, 3)
			if algorithm == windows.Aligned {
				require.Error(t, err)
				require.Zero(t, backend.Stats().Records)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, 1, backend.Stats().Records)
			require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 5))
		}
	})
}
