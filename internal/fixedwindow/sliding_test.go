package fixedwindow

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// slidingClient returns a backend of its own with sliding windows.
func slidingClient[T codec.Value](t testing.TB, srv *mockserver.Server) *Backend[T] {
	t.Helper()
	return start(t, options[T](t, srv))
}

// alignTo sleeps until the time is a multiple of the scale.
func alignTo(scale time.Duration) { time.Sleep(time.Until(time.Now().Truncate(scale).Add(scale))) }

// Whatever asks, a window that others have filled says when there is room.
func TestRefusalOfASlidingWindowThatOthersHaveFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		const scale, retry = 10 * time.Second, 11 * time.Second // 10 hits weigh 9 after 1 s of the next bucket
		alignTo(scale)
		require.Equal(t, 10, hits(t, slidingClient[uint16](t, srv), 10, "k", limitOf(window.SlidingWindow, scale, 10)))
		check := func(w window.Window, err error) {
			t.Helper()
			require.NoError(t, err)
			require.True(t, w.Refused)
			require.EqualValues(t, 10, w.Count)
			require.Equal(t, retry, w.RetryAfter)
		}
		w, _, err := slidingClient[uint16](t, srv).Hit(t.Context(), "k", limitOf(window.SlidingWindow, scale, 10), 1)
		check(w, err)
		w, _, err = slidingClient[uint16](t, srv).Peek(t.Context(), "k", limitOf(window.SlidingWindow, scale, 10), 1)
		check(w, err)
		w, _, err = slidingClient[uint16](t, srv).Take(t.Context(), "k", limitOf(window.SlidingWindow, scale, 9), 0)
		check(w, err)
		takes := []window.Take{limitOf(window.SlidingWindow, scale, 10).For("k", 1), limitOf(window.SlidingWindow, scale, 10).For("l", 1)}
		windows := make([]window.Window, 2)
		b := slidingClient[uint16](t, srv)
		for range 2 { // the second one knows the windows
			_, _, err = b.TakeAll(t.Context(), takes, windows)
			check(windows[0], err)
			require.Zero(t, windows[1])
			require.Error(t, errOf(b.Hit(t.Context(), "k", limitOf(window.SlidingWindow, scale, 10), 1)))
		}
	})
}

// Takes that are refused together are in the count of the server for a moment. None of them takes the
// others for hits that it has to wait for.
func TestTakesThatAreRefusedTogetherTellTheSameWait(t *testing.T) {
	const scale, limit = time.Hour, 50
	b := slidingClient[uint16](t, inMemory(t))
	for round := range 5 {
		key := fmt.Sprint(round)
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				w, _, err := b.Take(t.Context(), key, limitOf(window.SlidingWindow, scale, limit), 1)
				if err != nil {
					t.Error(err)
				}
				// 50 hits weigh 49 when a 50th of the next window is over.
				next := time.Until(time.Now().Truncate(scale).Add(scale + scale/limit))
				if w.Refused && w.RetryAfter > next+time.Minute {
					t.Errorf("RetryAfter is %v, want %v", w.RetryAfter, next)
				}
			})
		}
		all.Wait()
	}
}

func TestSlidingWindowTakesOneRoundTripPerHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, seen := observed(t)
		o := options[uint16](t, srv)
		server := &counting[uint16]{Server: o.Servers[0]}
		o.Servers[0] = server
		b := start(t, o)
		const scale = 10 * time.Second
		alignTo(scale)
		require.Equal(t, 10, hits(t, b, 10, "k", limitOf(window.SlidingWindow, scale, 1000)))
		time.Sleep(scale)
		require.Equal(t, 1, hits(t, b, 1, "k", limitOf(window.SlidingWindow, scale, 1000)))
		for _, queries := range []int{20, 20, 11} { // before and after the count of the bucket before is final
			seen.take()
			was := server.calls.Load()
			require.Equal(t, 10, hits(t, b, 10, "k", limitOf(window.SlidingWindow, scale, 1000)))
			require.EqualValues(t, 10, server.calls.Load()-was)
			require.Equal(t, queries, seen.take()[codec.OpQuery])
			time.Sleep(finalAfter - time.Second)
		}
	})
}

// Many clients hit at random times. In no two buckets more hits are granted than in the worst case, and
// never more than the estimate allows, which is computed here from what was granted.
func TestSlidingWindowsStayWithinTheirBound(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		t.Run(fmt.Sprintf("requests take %v", delay), func(t *testing.T) {
			t.Run("uint8", func(t *testing.T) { testSlidingBound[uint8](t, delay) })
			t.Run("uint16", func(t *testing.T) { testSlidingBound[uint16](t, delay) })
			t.Run("uint32", func(t *testing.T) { testSlidingBound[uint32](t, delay) })
			t.Run("uint64", func(t *testing.T) { testSlidingBound[uint64](t, delay) })
		})
	}
}

// testSlidingBound has requests take up to a delay.
func testSlidingBound[T codec.Value](t *testing.T, delay time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit, clients, buckets = 4 * time.Second, 40, 8, 12
		srv := inMemory(t, mockserver.WithValueSize(codec.Size[T]()))
		type grant struct{ from, to time.Time } // it was counted between these times
		var mu sync.Mutex                       // guards grants
		var grants []grant
		alignTo(scale)
		begin := time.Now()
		var all sync.WaitGroup
		for c := range clients {
			o := options[T](t, srv)
			o.Servers[0] = &counting[T]{Server: o.Servers[0], before: func() { time.Sleep(time.Duration(rand.Int64N(int64(delay + 1)))) }}
			b := start(t, o)
			random := rand.New(rand.NewPCG(uint64(c), 7))
			all.Go(func() {
				for time.Since(begin) < buckets*scale {
					from := time.Now()
					w, _, err := b.Hit(t.Context(), "k", limitOf(window.SlidingWindow, scale, limit), 1)
					if err != nil {
						t.Error(err)
						return
					}
					if !w.Refused {
						mu.Lock()
						grants = append(grants, grant{from, time.Now()})
						mu.Unlock()
						if w.Count > limit {
							t.Errorf("granted at %d", w.Count)
						}
					}
					time.Sleep(time.Duration(random.Int64N(int64(scale / 40))))
				}
			})
		}
		all.Wait()
		var count [buckets + 1]int
		for _, g := range grants {
			n := int(g.from.Sub(begin) / scale)
			if g.to.Sub(begin)/scale == g.from.Sub(begin)/scale {
				count[n]++
			}
		}
		for i, n := range count {
			if n > limit {
				t.Errorf("bucket %d has %d", i, n)
			}
		}
		if len(grants) < buckets*limit/2 || len(grants) > (buckets+1)*limit {
			t.Errorf("%d grants", len(grants))
		}
		if delay > 0 {
			return // it is not known when the hits were counted
		}
		for i, g := range grants { // is it within the estimate?
			bucket := g.from.Sub(begin) / scale
			before, own := 0, 0
			for j, o := range grants {
				switch o.from.Sub(begin) / scale {
				case bucket - 1:
					before++
				case bucket:
					if j <= i {
						own++
					}
				}
			}
			left := (bucket+1)*scale - g.to.Sub(begin)
			if float64(own)+float64(before)*float64(left)/float64(scale) > limit {
				t.Errorf("grant %d: %d of the bucket before, %v before the end, and %d", i, before, left, own)
			}
		}
	})
}

func errOf(w window.Window, _ bool, err error) error {
	if err == nil && w.Refused {
		return fmt.Errorf("refused: %+v", w)
	}
	return err
}

func TestRecordsOfSlidingWindowsAreRemovedBeforeTheyExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b := slidingClient[uint16](t, srv)
		const scale = 10 * time.Second
		alignTo(scale)
		for range 20 {
			hits(t, b, 3, "k", limitOf(window.SlidingWindow, scale, 1000))
			require.LessOrEqual(t, len(windowKeys(srv)), 4)
			time.Sleep(scale / 2)
		}
		time.Sleep(3 * scale)
		require.Empty(t, windowKeys(srv))
		require.Empty(t, srv.Expired())
	})
}

// A client whose clock is late still counts in the bucket before.
func TestSlidingWindowSeesLateHitsOfTheBucketBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		a := slidingClient[uint16](t, srv)
		o := options[uint16](t, srv)
		o.Now = func() time.Time { return time.Now().Add(-2 * time.Second) }
		late := start(t, o)
		const scale = 20 * time.Second
		alignTo(scale)
		require.Equal(t, 2, hits(t, a, 2, "k", limitOf(window.SlidingWindow, scale, 10)))
		time.Sleep(scale)
		require.NoError(t, errOf(a.Hit(t.Context(), "k", limitOf(window.SlidingWindow, scale, 10), 1))) // 2 weigh 2
		require.NoError(t, errOf(late.Hit(t.Context(), "k", limitOf(window.SlidingWindow, scale, 10), 5)))
		w, _, err := a.Hit(t.Context(), "k", limitOf(window.SlidingWindow, scale, 10), 1)
		require.NoError(t, err)
		require.EqualValues(t, 9, w.Count) // 7 weigh 7

		time.Sleep(scale + time.Second) // for late, the bucket before is the one with 7 for another second
		w, _, err = late.Hit(t.Context(), "k", limitOf(window.SlidingWindow, scale, 10), 1)
		require.NoError(t, err)
		require.EqualValues(t, 2+1+1, w.Count) // with 2 of its own bucket, 7 weigh 1
	})
}
