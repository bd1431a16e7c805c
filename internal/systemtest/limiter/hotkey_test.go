package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// hotKeyOptions are all the ways in which hits on one key can share requests.
var hotKeyOptions = map[string][]throttr.BackendOption{
	"as it is":                 nil,
	"apart":                    {throttr.WithoutCoalescing()},
	"every denial asks":        {throttr.WithDenialMemory(-1)},
	"apart, every denial asks": {throttr.WithoutCoalescing(), throttr.WithDenialMemory(-1)},
	"denials for ever":         {throttr.WithDenialMemory(1<<63 - 1)},
}

func TestAHotKeyGetsExactlyTheLimit(t *testing.T) {
	for name, opts := range hotKeyOptions {
		for _, algorithm := range []windows.Algorithm{windows.PerKey, windows.Aligned} {
			t.Run(name+", "+algorithm.String(), func(t *testing.T) {
				const goroutines, hits, limit = 64, 100_000, 1000
				srv := mockserver.RunT(t, mockserver.WithVirtualClock())
				client := testkit.Connect[uint16](t, srv, throttr.Config{})
				limiter := throttr.NewRateLimit(client.Backend(append(opts, throttr.WithClock(srv.Now), throttr.WithAlgorithm(algorithm))...))
				var allowed atomic.Int64
				var places [limit + 1]atomic.Bool
				var all sync.WaitGroup
				for g := range goroutines {
					all.Go(func() {
						for range (hits + g) / goroutines { // of all together, hits
							res, err := limiter.Hit(t.Context(), "k", time.Minute, limit)
							if err != nil {
								t.Errorf("Hit: %v", err)
								return
							}
							if !res.Allowed {
								continue
							}
							allowed.Add(1)
							if places[res.Count].Swap(true) {
								t.Errorf("place %d is given twice", res.Count)
							}
						}
					})
				}
				all.Wait()
				require.EqualValues(t, limit, allowed.Load())
			})
		}
	}
}

func TestIncrementsAndLimitsOfOneKeyDiffer(t *testing.T) {
	for name, opts := range hotKeyOptions {
		t.Run(name+", uint8", func(t *testing.T) { testIncrements[uint8](t, 150, opts) })
		t.Run(name+", uint32", func(t *testing.T) { testIncrements[uint32](t, 4000, opts) })
	}
}

// For each caller, allowed is what is within its limit. What was let through has places that
// do not overlap, and that what else was counted fills up at most.
func testIncrements[T codec.Value](t *testing.T, most uint64, opts []throttr.BackendOption) {
	type span struct{ from, to uint64 }
	srv := mockserver.RunT(t, mockserver.WithVirtualClock(), mockserver.WithValueSize(codec.Size[T]()))
	var mu sync.Mutex
	var through []span
	var all sync.WaitGroup
	for range 4 {
		client := testkit.Connect[T](t, srv, throttr.Config{})
		limiter := throttr.NewRateLimit(client.Backend(append(opts, throttr.WithClock(srv.Now))...))
		for range 16 {
			all.Go(func() {
				for range 100 {
					limit, increment := 1+rand.Uint64N(most), 1+rand.Uint64N(7)
					res, err := limiter.HitN(t.Context(), "k", time.Minute, limit, increment)
					switch {
					case err != nil:
						t.Errorf("HitN: %v", err)
						return
					case res.Allowed != (res.Count <= limit):
						t.Errorf("limit %d, increment %d: %+v", limit, increment, res)
					case res.Allowed:
						mu.Lock()
						through = append(through, span{res.Count - increment, res.Count})
						mu.Unlock()
					}
				}
			})
		}
	}
	all.Wait()
	require.NotEmpty(t, through)
	slices.SortFunc(through, func(a, b span) int { return int(a.from) - int(b.from) })
	for i, s := range through[1:] {
		require.GreaterOrEqual(t, s.from, through[i].to, "two hits share a place")
	}
	last := through[len(through)-1].to
	require.LessOrEqual(t, last, most)
	names := testkit.Keys(srv)
	require.Len(t, names, 1)
	count, _ := srv.Counter(names[0])
	require.GreaterOrEqual(t, count, last)
}

// countWindows starts a server, and returns it with the number of requests with an op that
// concern windows.
func countWindows(t *testing.T, op codec.Op) (*mockserver.Server, *atomic.Int64) {
	n := new(atomic.Int64)
	return testkit.InMemory(t, mockserver.WithObserver(func(x mockserver.Exec) {
		if x.Op == op && strings.HasPrefix(x.Key, "rl:") {
			n.Add(1)
		}
	})), n
}

// updates lets 100 callers hit a key at once, a few times, and returns how many requests
// that took.
func updates(t *testing.T, opts ...throttr.BackendOption) int {
	srv, n := countWindows(t, codec.OpUpdate)
	srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	l := testkit.Limiter[uint16](t, srv, opts...)
	testkit.Hits(t, l, 1, "k", time.Minute, 5000)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { testkit.Hits(t, l, 5, "k", time.Minute, 5000) })
	}
	all.Wait()
	return int(n.Load()) - 1
}

func TestHitsShareRequestsUnlessToldNotTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Less(t, updates(t), 20)
		require.Equal(t, 500, updates(t, throttr.WithoutCoalescing()))
	})
}

func TestDenialsAreRememberedForAsLongAsTold(t *testing.T) {
	for memory, asked := range map[time.Duration]int{
		-1:                     600, // every hit
		0:                      60,  // a second, at a scale of a minute
		100 * time.Millisecond: 600,
		5 * time.Second:        12,
		time.Hour:              0,
	} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, n := countWindows(t, codec.OpQuery)
				l := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(memory))
				require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 2))
				before := int(n.Load())
				for range 599 {
					time.Sleep(100 * time.Millisecond)
					require.Zero(t, testkit.Hits(t, l, 1, "k", time.Minute, 2))
				}
				require.InDelta(t, asked, int(n.Load())-before, 2)
				time.Sleep(100 * time.Millisecond)
				require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 2), "never beyond the window's end")
			})
		})
	}
}

// A Set or Reset by another client is seen as soon as the denial is forgotten.
func TestAnotherClientsResetIsSeenWhenTheDenialIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		other := testkit.Limiter[uint16](t, srv)
		never := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(-1))
		long := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(10*time.Second))
		require.Equal(t, 2, testkit.Hits(t, long, 3, "k", time.Minute, 2))
		require.Zero(t, testkit.Hits(t, never, 3, "k", time.Minute, 2))
		require.NoError(t, other.Reset(t.Context(), "k", time.Minute))
		require.Equal(t, 1, testkit.Hits(t, never, 1, "k", time.Minute, 2))
		time.Sleep(10*time.Second - 1)
		require.Zero(t, testkit.Hits(t, long, 1, "k", time.Minute, 2))
		time.Sleep(1)
		require.Equal(t, 1, testkit.Hits(t, long, 1, "k", time.Minute, 2))
	})
}
