package inflight_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// It does not matter who has opened the backend.
func TestPlacesInMemoryAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	b, err := throttr.Open(t.Context(), "memory://")
	require.NoError(t, err)
	defer b.Close()
	for most, opts := range map[float64][]inflight.Option{4: nil, 6: {inflight.WithObserver(func(context.Context, inflight.Event) {})}} {
		l := newLimiter(t, b, opts...)
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { acquire(t, l, "k", exports, 1).Release() }), most)
	}
}

// However the backend is wrapped, its places are those of all who use it. Contexts end with the place, and places do not
// end with the context.
func TestUpToMaxPlacesAreHeld(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		one, two := newLimiter(t, b), newLimiter(t, lease.New(b))
		type key struct{}
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
		a, err := one.Acquire(parent, "k", exports, 1)
		require.NoError(t, err)
		require.Equal(t, 7, a.Context().Value(key{}))
		require.NoError(t, a.Context().Err())
		cancel()
		require.ErrorIs(t, context.Cause(a.Context()), context.Canceled)
		require.True(t, a.Valid(), "it is held until it is released")
		c := acquire(t, two, "k", exports, 1)
		require.Greater(t, c.Token(), a.Token())
		denied(t, one, "k", exports, 1)
		denied(t, two, "k", exports, 1)
		acquire(t, one, "other", exports, 2).Release()
		acquire(t, one, "k", inflight.Limit{Name: "imports", Max: 2}, 2).Release()

		a.Release()
		a.Release()
		require.False(t, a.Valid())
		synctest.Wait()
		d := acquire(t, two, "k", exports, 1)
		require.Greater(t, d.Token(), c.Token())
		ctx := d.Context()
		time.Sleep(10 * exports.Lease)
		require.True(t, c.Valid() && d.Valid() && ctx.Err() == nil, "places are renewed")
		denied(t, one, "k", exports, 1)
		require.EqualValues(t, 2, two.Stats().InUse)
		c.Release()
		synctest.Wait()
		s, err := one.Peek(t.Context(), "k", exports)
		require.NoError(t, err)
		require.Equal(t, inflight.State{InUse: 1, Free: 1}, s)
		d.Release()
		for _, ended := range []context.Context{c.Context(), ctx} { // asked for after and before
			require.ErrorIs(t, context.Cause(ended), context.Canceled)
		}
	})
}

func TestMistakesAreErrors(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		l := newLimiter(t, b)
		for _, limit := range []inflight.Limit{
			{Name: strings.Repeat("n", 65), Max: 1}, {Max: window.MaxPlaces + 1},
			{Max: 1, Lease: 1}, {Max: 1, Lease: -time.Second}, {Max: 1, Lease: 48 * time.Hour},
		} {
			fails(t, l, "k", limit, throttr.ErrRange)
			_, err := l.Peek(t.Context(), "k", limit)
			require.ErrorIs(t, err, throttr.ErrRange, "%v", limit)
			require.ErrorIs(t, l.Check(exports, limit), throttr.ErrRange, "%v", limit)
		}
		_, err := l.Acquire(t.Context(), "k", exports, 0)
		require.ErrorIs(t, err, throttr.ErrRange)
		_, err = l.Acquire(t.Context(), "k", exports, 3)
		require.EqualError(t, err, `throttr: key "k": 3 can never be granted by the limit exports: 2 at a time`)
		denied(t, l, "k", exports, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = l.TryAcquire(ctx, "k", exports, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, l.Stats().InUse)
	})
	l := newLimiter(t, struct{ window.Unimplemented }{}, inflight.WithPolicy(inflight.Admit))
	h, err := l.Acquire(t.Context(), "k", exports, 1)
	require.ErrorIs(t, err, throttr.ErrUnsupported)
	h.Release()
	require.ErrorIs(t, l.Check(), throttr.ErrUnsupported)
	require.EqualError(t, l.Check(exports), "inflight: the backend keeps no places in flight: throttr: unsupported operation")
	r := newRemote(t)
	r.be(hangs)
	require.NoError(t, newLimiter(t, r).Check(exports, inflight.Limit{}), "no store is asked")
	require.Panics(t, func() { inflight.New(nil) })
	require.Panics(t, func() { inflight.WithPolicy(7) })
	for i, o := range []inflight.Option{nil, inflight.WithProcesses(-1), inflight.WithMaxKeys(-1), inflight.WithMaxWaiting(-1),
		inflight.WithTimeout(-1), inflight.WithBreaker(-1, 0), inflight.WithBreaker(0, -1)} {
		require.Panics(t, func() { inflight.New(memory.New(), o) }, i)
	}
}

// Each number of an option and of a limit may be 0, if it has a default, or the largest one.
func TestNumbersAtTheirBounds(t *testing.T) {
	for _, n := range []int{0, math.MaxInt} {
		each(t, func(t *testing.T, b window.Backend) {
			l := newLimiter(t, b, inflight.WithPolicy(inflight.Share), inflight.WithProcesses(n), inflight.WithMaxKeys(n),
				inflight.WithMaxWaiting(n), inflight.WithTimeout(time.Duration(n)), inflight.WithBreaker(n, time.Duration(n)))
			limit := inflight.Limit{Max: window.MaxPlaces, Lease: window.MaxLease}
			acquire(t, l, "k", limit, window.MaxPlaces)
			denied(t, l, "k", limit, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			require.ErrorIs(t, <-waits(ctx, l, "k", limit, 1), context.DeadlineExceeded)
			denied(t, l, "k", inflight.Limit{}, 1)
			for range 100 {
				h := acquire(t, l, "k", inflight.Limit{Max: window.Unlimited}, math.MaxInt32)
				require.False(t, h.Degraded(), "the store is there")
			}
		})
	}
}

// A backend in memory has lost no data, whatever its clock says. If it is closed, it refuses new places, and is not asked
// again for what it can't do.
func TestMemoryLosesNoData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		b := memory.New(memory.WithClock(func() time.Time { return now }))
		now = now.Add(-time.Hour)
		l := newLimiter(t, b, inflight.WithStrict())
		h := acquire(t, l, "k", exports, 1)
		require.False(t, h.Degraded())
		for p := range b.ListPlaces(t.Context()) {
			require.Zero(t, p.ByProcess[0].LeaseEnds)
		}
		now = now.Add(2 * window.MaxLease)
		denied(t, newLimiter(t, b), "k", exports, 2)
		require.NoError(t, b.Close())
		for _, key := range []string{"k", "other"} {
			require.ErrorIs(t, <-waits(t.Context(), l, key, exports, 1), throttr.ErrClosed)
		}
		require.True(t, h.Valid(), "nobody else can have it")
		h.Release()
		require.Equal(t, inflight.Stats{}, l.Stats())
	})
}

// The bounds on keys and on calls that wait are no outage, whatever the policy. Those that were refused or served do
// not count.
func TestKeysAndWaitsAreBounded(t *testing.T) {
	cases(t, map[string]inflight.Policy{"refuse": inflight.Refuse, "share": inflight.Share, "admit": inflight.Admit},
		func(t *testing.T, r *remote, policy inflight.Policy) {
			l := newLimiter(t, r, inflight.WithPolicy(policy), inflight.WithMaxKeys(1), inflight.WithMaxWaiting(2))
			for range 3 {
				h := acquire(t, l, "k", exports, 2)
				fails(t, l, "other", exports, throttr.ErrFull)
				served := []<-chan error{waits(t.Context(), l, "k", exports, 1), waits(t.Context(), l, "k", exports, 1)}
				for range 3 {
					require.ErrorIs(t, <-waits(t.Context(), l, "k", exports, 1), throttr.ErrOverloaded)
					fails(t, l, "k", exports, throttr.ErrOverloaded)
				}
				require.Equal(t, 2, l.Stats().Waiting)
				h.Release()
				require.NoError(t, <-served[0])
				require.NoError(t, <-served[1])
				synctest.Wait()
				require.Equal(t, inflight.Stats{}, l.Stats())
			}
		})
}

// A store that hangs keeps no keys of callers who have gone before it was told of them, and neither does a circuit that
// is open. Keys that come later have pumps of their own, even while others are still queued.
func TestAKeyWhoseCallersHaveGoneIsForgotten(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		l := newLimiter(t, r, inflight.WithMaxKeys(3))
		h := acquire(t, l, "held", exports, 1)
		r.be(hangs)
		h.Release()
		synctest.Wait()
		for i := range 9 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := l.Acquire(ctx, fmt.Sprint("gone", i), exports, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 1, l.Stats().Keys)
			cancel()
		}
		r.be(nil)
		ctx, cancel := context.WithTimeout(t.Context(), exports.Lease)
		defer cancel()
		served := []<-chan error{waits(ctx, l, "a", exports, 1), waits(ctx, l, "b", exports, 1)}
		require.NoError(t, <-served[0])
		require.NoError(t, <-served[1])
		time.Sleep(time.Second)
		require.Equal(t, inflight.Stats{}, l.Stats())

		r.be(away)
		for i := range 12 { // three open the circuit, and may have reached the store
			fails(t, l, fmt.Sprint("k", max(i, 3)), exports, throttr.ErrUnavailable)
		}
		require.Equal(t, 1, l.Stats().Keys)
		time.Sleep(2 * time.Second)
		require.Equal(t, inflight.Stats{}, l.Stats())
	})
}

// queues acquires in a goroutine, which says when it holds, and gives back a second later.
func queues(t *testing.T, l *inflight.Limiter, limit inflight.Limit, n uint64, held chan<- int, who int) {
	go func() {
		h, err := l.Acquire(t.Context(), "k", limit, n)
		require.NoError(t, err)
		held <- who
		time.Sleep(time.Second)
		h.Release()
	}()
	synctest.Wait()
}

// A lower Max under the same name is a lower priority: who has it waits until others leave that much room.
func TestWhoeverWaitsGetsAPlaceInOrderOfPriority(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		one, two := newLimiter(t, b), newLimiter(t, b)
		first := acquire(t, one, "k", exports, 2)
		order := make(chan int, 5)
		for i, n := range []uint64{1, 2, 1, 1, 2} { // the large ones are not overtaken
			queues(t, one, exports, n, order, i)
		}
		denied(t, one, "k", exports, 1)
		require.Equal(t, 5, one.Stats().Waiting)
		first.Release()
		require.Equal(t, []int{0, 1}, []int{<-order, <-order})
		require.ElementsMatch(t, []int{2, 3}, []int{<-order, <-order})
		require.Equal(t, 4, <-order)
		time.Sleep(2 * time.Second)

		batch, interactive := inflight.Limit{Max: 2}, inflight.Limit{Max: 4}
		first = acquire(t, one, "k", batch, 2)
		queues(t, one, batch, 1, order, 2)
		a, c := acquire(t, one, "k", interactive, 1), acquire(t, two, "k", interactive, 1) // past the one that waits
		denied(t, one, "k", interactive, 1)
		denied(t, two, "k", batch, 1)
		queues(t, two, interactive, 1, order, 4)
		queues(t, two, interactive, 1, order, 4)
		first.Release()
		synctest.Wait()
		require.Len(t, order, 2)
		a.Release()
		c.Release()
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{4, 4, 2}, []int{<-order, <-order, <-order})
	})
}

// The wake-up of another process comes with the release, and not with the next poll. A wait that is given up holds
// nothing. Observers see all of it.
func TestAReleaseWakesWhoeverStillWaits(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		var told told
		one, two := newLimiter(t, b, told.options()...), newLimiter(t, b, told.options()...)
		h := acquire(t, one, "k", exports, 2)
		denied(t, one, "k", exports, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, <-waits(ctx, two, "k", exports, 2), context.DeadlineExceeded)
		require.Zero(t, two.Stats().Waiting)
		time.AfterFunc(1001*time.Millisecond, func() {
			h.Release()
			h.Release()
		})
		second, err := two.Acquire(t.Context(), "k", exports, 1)
		require.NoError(t, err)
		time.Sleep(time.Second)
		second.Release()
		synctest.Wait()
		slices.SortFunc(told.events[3:5], func(a, b inflight.Event) int { return cmp.Compare(a.Kind, b.Kind) }) // they come at one time
		require.Equal(t, []inflight.Event{
			{Kind: inflight.Acquired, Key: "k", Limit: exports, N: 2, InUse: 2},
			{Kind: inflight.Denied, Key: "k", Limit: exports, N: 1, InUse: 2},
			{Kind: inflight.Failed, Key: "k", Limit: exports, N: 2, Waited: 500 * time.Millisecond, InUse: 2, Err: context.DeadlineExceeded},
			{Kind: inflight.Acquired, Key: "k", Limit: exports, N: 1, Waited: 1001 * time.Millisecond, InUse: 1},
			{Kind: inflight.Released, Key: "k", Limit: exports, N: 2, Held: 1501 * time.Millisecond},
			{Kind: inflight.Released, Key: "k", Limit: exports, N: 1, Held: time.Second},
		}, told.events)
	})
}

// Many goroutines of several limiters hold no more than Max, and leave nothing, also if a ctx ends at any time between
// the call and its return. With -race: what ends a Hold of a Limiter that is closed writes nothing that the call reads
// which returns it.
func TestConcurrentHoldersAreNeverOver(t *testing.T) {
	for name, b := range map[string]window.Backend{"memory": newMemory(t), "remote": newRemote(t)} {
		t.Run(name, func(t *testing.T) {
			limit := inflight.Limit{Max: 5, Lease: 10 * time.Second}
			var held [3]atomic.Int64
			limiters := []*inflight.Limiter{newLimiter(t, b), newLimiter(t, b), newLimiter(t, b)}
			for i := range 1000 {
				var all sync.WaitGroup
				for g := range 6 {
					all.Go(func() {
						n, k := uint64(1+(g+i)%3), i%3
						ctx, cancel := context.WithCancel(t.Context())
						if g%3 == 0 {
							all.Go(cancel)
						}
						defer cancel()
						h, err := limiters[i*g%3].Acquire(ctx, fmt.Sprint(k), limit, n)
						if err != nil {
							require.ErrorIs(t, err, ctx.Err())
							return
						}
						if got := held[k].Add(int64(n)); got > int64(limit.Max) || !h.Valid() {
							t.Errorf("%d of %d are held, valid %v", got, limit.Max, h.Valid())
						}
						runtime.Gosched()
						held[k].Add(-int64(n))
						h.Release()
					})
				}
				closing := inflight.New(b, inflight.WithLogger(nil))
				all.Go(func() {
					var err error
					for h := (*inflight.Hold)(nil); err == nil; h, err = closing.Acquire(t.Context(), "k", limit, 1) {
						h.Release()
					}
					require.ErrorIs(t, err, throttr.ErrClosed)
				})
				all.Go(func() { closing.Close() })
				all.Wait() // nobody holds or wants anything until the next round
			}
			for _, l := range limiters {
				require.Eventually(t, func() bool {
					s, err := l.Peek(t.Context(), "0", limit)
					return err == nil && s.InUse == 0 && s.Waiting == 0 && l.Stats() == inflight.Stats{}
				}, 10*time.Second, time.Millisecond, "%+v", l.Stats())
			}
		})
	}
}

// Close ends all that is held and wanted. Holders know of it before others can have their places.
func TestCloseReleasesAll(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		two := newLimiter(t, b)
		taken, places := uint64(0), make([]window.Places, 1)
		one := newLimiter(t, b, inflight.WithObserver(func(_ context.Context, e inflight.Event) {
			if e.Kind == inflight.Released {
				b.Exchange(t.Context(), []window.Claim{{Key: "k", Name: exports.Name}}, places)
				taken += two.Stats().InUse
			}
		}))
		h := acquire(t, one, "k", exports, 2)
		ctx := h.Context()
		ended := []<-chan error{waits(t.Context(), one, "k", exports, 1), waits(t.Context(), one, "k", exports, 1)}
		next := waits(t.Context(), two, "k", exports, 2)
		require.NoError(t, one.Close())
		require.Zero(t, taken)
		require.EqualValues(t, 2, places[0].Used, "the store is told after the holders")
		for _, err := range ended {
			require.ErrorIs(t, <-err, throttr.ErrClosed)
		}
		require.False(t, h.Valid())
		require.ErrorIs(t, context.Cause(ctx), throttr.ErrClosed)
		h.Release()
		require.NoError(t, <-next)
		fails(t, one, "k", exports, throttr.ErrClosed)
		_, err := one.Peek(t.Context(), "k", exports)
		require.ErrorIs(t, err, throttr.ErrClosed)
	})
}

// What an exchange says that ends after Close is of no use, and nothing follows it.
func TestNothingFollowsClose(t *testing.T) {
	cases(t, map[string]error{"an answer": nil, "a failure": away(t.Context(), make([]window.Claim, 1))},
		func(t *testing.T, r *remote, err error) {
			l := newLimiter(t, r)
			r.be(func(context.Context, []window.Claim) error {
				time.Sleep(3 * time.Second) // however short the timeout is
				return err
			})
			waiting := waits(t.Context(), l, "k", inflight.Limit{Max: 1}, 1)
			require.NoError(t, l.Close())
			require.ErrorIs(t, <-waiting, throttr.ErrClosed)
			time.Sleep(10 * time.Second)
			require.EqualValues(t, 1, r.calls.Load())
			require.Zero(t, l.Stats())
		})
}

// Those who want something while an exchange is in flight share the next ones, each of up to 128 keys. If they are many,
// one of these begins at once. However many they are, they have few goroutines.
func TestManyKeysShareAnExchange(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		stall := make(chan struct{})
		r.be(func(context.Context, []window.Claim) error { <-stall; return nil })
		l := newLimiter(t, r)
		var all sync.WaitGroup
		for i := range 1 + 32 + 2*128 {
			all.Go(func() { acquire(t, l, fmt.Sprint(i), exports, 1) })
			synctest.Wait()
			require.EqualValues(t, 1+min(i/32, 1), r.calls.Load())
		}
		close(stall)
		all.Wait()
		require.EqualValues(t, 289, l.Stats().InUse)
		require.EqualValues(t, 4, r.calls.Load())
		stacks := make([]byte, 1<<20)
		for range 20 {
			time.Sleep(exports.Lease / 10) // they are renewed
			synctest.Wait()
			n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "synctest bubble")
			require.Positive(t, n)
			require.LessOrEqual(t, n, 20)
		}
		require.Zero(t, l.Stats().Lost)
	})
}

// A Hold that ends before the observer knows of it is told as any other. With -race: an answer writes nothing that a call
// reads which has ended before.
func TestObserverIsToldOfEachEnd(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		var l *inflight.Limiter
		var ends []inflight.Kind
		l = newLimiter(t, r, inflight.WithObserver(func(_ context.Context, e inflight.Event) {
			switch {
			case e.Kind == inflight.Failed:
				time.Sleep(time.Second)
			case e.Kind == inflight.Lost || e.Kind == inflight.Released:
				ends = append(ends, e.Kind)
			case e.Kind == inflight.Acquired && len(ends) > 0:
				l.Close()
			case e.Kind == inflight.Acquired:
				r.be(away)
				time.Sleep(exports.Lease)
				r.be(nil)
			}
		}))
		r.be(func(context.Context, []window.Claim) error { time.Sleep(100 * time.Millisecond); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, <-waits(ctx, l, "k", exports, 1), context.DeadlineExceeded)
		r.be(nil)
		for range 2 {
			h, _, err := l.TryAcquire(t.Context(), "k", exports, 1)
			require.NoError(t, err)
			require.False(t, h.Valid())
			time.Sleep(exports.Lease)
		}
		require.Equal(t, []inflight.Kind{inflight.Lost, inflight.Released}, ends)
		require.EqualValues(t, 1, l.Stats().Lost)
	})
}
