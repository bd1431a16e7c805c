package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	"github.com/throttr-go/throttr/window"
)

// hotKeyOptions are the ways in which hits on one key share requests.
var hotKeyOptions = map[string][]throttr.BackendOption{
	"default":                       nil,
	"no denial memory":              {throttr.WithDenialMemory(-1)},
	"denials remembered to the end": {throttr.WithDenialMemory(1<<63 - 1)},
}

func TestHotKeyAllowsExactlyTheLimit(t *testing.T) {
	for name, opts := range hotKeyOptions {
		for _, algorithm := range []throttr.Algorithm{window.FixedWindow, throttr.AlignedWindow} {
			t.Run(name+"/"+algorithm.String(), func(t *testing.T) {
				const goroutines, hits, limit = 64, 100_000, 1000
				srv := mockserver.RunT(t, mockserver.WithVirtualClock())
				client := testkit.Connect[uint16](t, srv, throttr.Config{})
				limiter := testkit.NewRateLimit(client.Backend(append(opts, throttr.WithClock(srv.Now))...), throttr.WithAlgorithm(algorithm))
				var allowed atomic.Int64
				var returned [limit + 1]atomic.Bool // counts
				var callers sync.WaitGroup
				for g := range goroutines {
					callers.Go(func() {
						for range (hits + g) / goroutines { // the sum over all goroutines is hits
							res, err := limiter.Hit(t.Context(), "k", time.Minute, limit)
							if err != nil {
								t.Errorf("Hit: %v", err)
								return
							}
							if !res.Allowed {
								continue
							}
							allowed.Add(1)
							if returned[res.Count].Swap(true) {
								t.Errorf("count %d was returned twice", res.Count)
							}
						}
					})
				}
				callers.Wait()
				require.EqualValues(t, limit, allowed.Load())
			})
		}
	}
}

func TestIncrementsAndLimitsOfOneKeyCanDiffer(t *testing.T) {
	for name, opts := range hotKeyOptions {
		t.Run(name+"/uint8", func(t *testing.T) { testIncrements[uint8](t, 255, opts) })
		t.Run(name+"/uint32", func(t *testing.T) { testIncrements[uint32](t, 4000, opts) })
	}
}

// testIncrements makes hits with random increments, and random limits up to maxLimit. A hit with
// increment n that returns count c has the range from c-n to c of the count. It is allowed if c is
// within its limit. The ranges of allowed hits must not overlap.
func testIncrements[T codec.Value](t *testing.T, maxLimit uint64, opts []throttr.BackendOption) {
	type countRange struct{ from, to uint64 }
	srv := mockserver.RunT(t, mockserver.WithVirtualClock(), mockserver.WithValueSize(codec.Size[T]()))
	var mu sync.Mutex
	var allowed []countRange
	var callers sync.WaitGroup
	for range 4 {
		client := testkit.Connect[T](t, srv, throttr.Config{})
		limiter := testkit.NewRateLimit(client.Backend(append(opts, throttr.WithClock(srv.Now))...))
		for range 16 {
			callers.Go(func() {
				for range 100 {
					limit, increment := 1+rand.Uint64N(maxLimit), 1+rand.Uint64N(7)
					res, err := limiter.HitN(t.Context(), "k", throttr.Limit{Max: limit, Scale: time.Minute}, increment)
					switch {
					case err != nil:
						t.Errorf("HitN: %v", err)
						return
					case increment > limit:
						if res.Allowed || res.RetryAfter != throttr.Never {
							t.Errorf("limit %d, increment %d: %+v", limit, increment, res)
						}
					case res.Allowed && res.Count > limit, !res.Allowed && res.Count+increment <= limit:
						t.Errorf("limit %d, increment %d: %+v", limit, increment, res)
					case res.Allowed:
						mu.Lock()
						allowed = append(allowed, countRange{res.Count - increment, res.Count})
						mu.Unlock()
					}
				}
			})
		}
	}
	callers.Wait()
	require.NotEmpty(t, allowed)
	slices.SortFunc(allowed, func(a, b countRange) int { return int(a.from) - int(b.from) })
	for i, r := range allowed[1:] {
		require.GreaterOrEqual(t, r.from, allowed[i].to, "two hits have the same part of the count")
	}
	last := allowed[len(allowed)-1].to
	require.LessOrEqual(t, last, maxLimit)
	names := testkit.Keys(srv)
	require.Len(t, names, 1)
	count, _ := srv.Counter(names[0])
	require.GreaterOrEqual(t, uint64(^T(0))-count, last)
}

func TestConcurrentHitsShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { require.Less(t, requestsOf500Hits(t), 20) })
}

// requestsOf500Hits returns the number of UPDATEs for 500 hits of 100 callers.
func requestsOf500Hits(t *testing.T, opts ...throttr.BackendOption) int {
	srv, count := countRequests(t, "k")
	srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	l := testkit.Limiter[uint16](t, srv, opts...)
	testkit.Hits(t, l, 1, "k", time.Minute, 5000)
	count()
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() { testkit.Hits(t, l, 5, "k", time.Minute, 5000) })
	}
	callers.Wait()
	return count().updates
}

func TestDenialsAreDecidedFromMemory(t *testing.T) {
	for memory, queries := range map[time.Duration]int{ // for 599 denials, one each 100 ms
		-1:                     600, // one for each hit
		0:                      60,  // the default for a scale of one minute is 1 s
		100 * time.Millisecond: 600,
		5 * time.Second:        12,
		time.Hour:              0,
	} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, count := countRequests(t, "k")
				l := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(memory))
				require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 2))
				count()
				for range 599 {
					time.Sleep(100 * time.Millisecond)
					require.Zero(t, testkit.Hits(t, l, 1, "k", time.Minute, 2))
				}
				require.InDelta(t, queries, count().queries, 2)
				time.Sleep(100 * time.Millisecond)
				require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 2), "the window is over")
			})
		})
	}
}

func TestResetByAnotherClientTakesEffectAfterTheDenialMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		other := testkit.Limiter[uint16](t, srv)
		none := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(-1))
		long := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(10*time.Second))
		require.Equal(t, 2, testkit.Hits(t, long, 3, "k", time.Minute, 2))
		require.Zero(t, testkit.Hits(t, none, 3, "k", time.Minute, 2))
		start := time.Now()
		require.NoError(t, other.Reset(t.Context(), "k", time.Minute))
		require.Equal(t, time.Second, time.Since(start), "a Reset takes a guard")
		require.Equal(t, 1, testkit.Hits(t, none, 1, "k", time.Minute, 2))
		time.Sleep(9*time.Second - 1)
		require.Zero(t, testkit.Hits(t, long, 1, "k", time.Minute, 2))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1, testkit.Hits(t, long, 1, "k", time.Minute, 2))
	})
}
