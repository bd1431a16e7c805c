package inflight_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var exports = inflight.Limit{Name: "exports", Max: 2, Lease: time.Second}

// remote is a backend whose places are asked for in exchanges, as those of a store elsewhere.
type remote struct {
	window.Backend
	away  atomic.Bool          // exchanges fail
	stall chan struct{}        // exchanges wait for it, unless nil
	calls atomic.Int64         // exchanges
	after func([]window.Claim) // is called after an exchange, before its answer arrives; or nil
}

func (r *remote) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	r.calls.Add(1)
	if r.away.Load() {
		err := fmt.Errorf("%w: connection refused", window.ErrUnavailable)
		return &api.CallError{Package: "remote", Call: "exchange", Key: claims[0].Key, Err: err} // no line has the key
	}
	if r.stall != nil {
		select {
		case <-r.stall:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := r.Backend.Exchange(ctx, claims, places)
	if r.after != nil {
		r.after(claims)
	}
	return err
}

func newRemote(t *testing.T) *remote { return &remote{Backend: newMemory(t)} }

// newMemory returns a backend in memory that is closed at the end of the test.
func newMemory(t *testing.T) *memory.Backend {
	b := memory.New(memory.WithClock(time.Now))
	t.Cleanup(func() { b.Close() })
	return b
}

// each runs a test with a backend in memory, and with one that is asked.
func each(t *testing.T, test func(t *testing.T, b window.Backend)) {
	t.Run("memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newMemory(t)) }) })
	t.Run("remote", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newRemote(t)) }) })
}

// newLimiter returns a limiter that is closed at the end of the test.
func newLimiter(t *testing.T, b window.Backend, opts ...inflight.Option) *inflight.Limiter {
	l := inflight.New(b, append([]inflight.Option{inflight.WithLogger(nil)}, opts...)...)
	t.Cleanup(func() { l.Close() })
	return l
}

func acquire(t *testing.T, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) *inflight.Hold {
	t.Helper()
	h, ok, err := l.TryAcquire(t.Context(), key, limit, n)
	require.NoError(t, err)
	require.True(t, ok, "no place")
	require.True(t, h.Valid())
	return h
}

func denied(t *testing.T, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) {
	t.Helper()
	h, ok, err := l.TryAcquire(t.Context(), key, limit, n)
	require.NoError(t, err)
	require.False(t, ok)
	require.Nil(t, h)
}

// However a backend in memory is wrapped, its places are those of all who use it.
func TestWrappedBackendsHavePlaces(t *testing.T) {
	opened, err := throttr.Open(t.Context(), "memory://")
	require.NoError(t, err)
	defer opened.Close()
	for _, b := range []window.Backend{opened, lease.New(newMemory(t)), struct{ throttr.Backend }{newMemory(t)}} {
		h := acquire(t, newLimiter(t, b), "k", exports, 2)
		denied(t, newLimiter(t, b), "k", exports, 1)
		h.Release()
	}
}

func TestUpToMaxPlacesAreHeld(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		one, two := newLimiter(t, b), newLimiter(t, b)
		a := acquire(t, one, "k", exports, 1)
		c := acquire(t, two, "k", exports, 1)
		require.Greater(t, c.Token(), a.Token())
		denied(t, one, "k", exports, 1)
		denied(t, two, "k", exports, 1)
		acquire(t, one, "other", exports, 2).Release()
		other := exports
		other.Name = "imports"
		acquire(t, one, "k", other, 2).Release()
		s, err := one.Peek(t.Context(), "k", exports)
		require.NoError(t, err)
		require.Equal(t, inflight.State{InUse: 2}, s)

		a.Release()
		a.Release()
		require.False(t, a.Valid())
		synctest.Wait()
		d := acquire(t, two, "k", exports, 1)
		require.Greater(t, d.Token(), c.Token())
		denied(t, one, "k", exports, 1)
		time.Sleep(10 * exports.Lease)
		require.True(t, c.Valid() && d.Valid(), "places are renewed")
		denied(t, one, "k", exports, 1)
		require.EqualValues(t, 2, two.Stats().InUse)
		c.Release()
		d.Release()
		synctest.Wait()
		s, err = one.Peek(t.Context(), "k", exports)
		require.NoError(t, err)
		require.Equal(t, inflight.State{Free: 2}, s)
	})
}

func TestLimitsOfOneKeyMayDiffer(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		l := newLimiter(t, b)
		h := acquire(t, l, "k", inflight.Limit{Max: 5}, 4)
		denied(t, l, "k", inflight.Limit{Max: 2}, 1)
		acquire(t, l, "k", inflight.Limit{Max: 5}, 1).Release()
		require.True(t, h.Valid(), "a lower Max takes nothing away")
		denied(t, l, "k", inflight.Limit{Max: 0}, 1)
		for range 100 {
			h := acquire(t, l, "k", inflight.Limit{Max: window.Unlimited}, math.MaxInt32)
			require.False(t, h.Degraded(), "the store is there")
		}
		require.Equal(t, "exports: 2 at a time", exports.String())
	})
}

func TestMistakesAreErrors(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		l := newLimiter(t, b)
		for _, limit := range []inflight.Limit{
			{Name: strings.Repeat("n", 65), Max: 1}, {Max: window.MaxPlaces + 1}, {Max: 1, Lease: 1}, {Max: 1, Lease: -time.Second}, {Max: 1, Lease: 48 * time.Hour},
		} {
			_, _, err := l.TryAcquire(t.Context(), "k", limit, 1)
			require.ErrorIs(t, err, throttr.ErrRange, "%v", limit)
			_, err = l.Peek(t.Context(), "k", limit)
			require.ErrorIs(t, err, throttr.ErrRange, "%v", limit)
		}
		_, err := l.Acquire(t.Context(), "k", exports, 0)
		require.ErrorIs(t, err, throttr.ErrRange)
		var cost *throttr.CostError
		_, err = l.Acquire(t.Context(), "k", exports, 3)
		require.ErrorAs(t, err, &cost)
		require.EqualError(t, err, `throttr: key "k": 3 can never be granted by the limit exports: 2 at a time`)
		denied(t, l, "k", exports, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = l.TryAcquire(ctx, "k", exports, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, l.Stats().InUse)
	})
}

func TestWhatCanNotBeHeld(t *testing.T) {
	l := newLimiter(t, struct{ window.Unimplemented }{}, inflight.WithPolicy(inflight.Admit))
	_, _, err := l.TryAcquire(t.Context(), "k", exports, 1)
	require.ErrorIs(t, err, throttr.ErrUnsupported)
	h, err := l.Acquire(t.Context(), "k", exports, 1)
	require.ErrorIs(t, err, throttr.ErrUnsupported)
	h.Release()
	require.False(t, h.Valid() || h.Degraded())
	require.Zero(t, h.Token())
	require.ErrorIs(t, context.Cause(h.Context()), inflight.ErrLost)
}

func TestWhoeverWaitsGetsAPlaceInOrder(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		l := newLimiter(t, b)
		first := acquire(t, l, "k", exports, 2)
		order := make(chan int, 5)
		var all sync.WaitGroup
		for i, n := range []uint64{1, 2, 1, 1, 2} { // the large ones are not overtaken
			all.Go(func() {
				h, err := l.Acquire(t.Context(), "k", exports, n)
				require.NoError(t, err)
				order <- i
				time.Sleep(time.Second)
				h.Release()
			})
			synctest.Wait()
		}
		denied(t, l, "k", exports, 1)
		require.Equal(t, 5, l.Stats().Waiting)
		first.Release()
		all.Wait()
		close(order)
		var got []int
		for i := range order {
			got = append(got, i)
		}
		require.Equal(t, []int{0, 1}, got[:2])
		require.ElementsMatch(t, []int{2, 3}, got[2:4])
		require.Equal(t, 4, got[4])
	})
}

// The wake-up of another process comes with the release, and not with the next poll. A wait that is given up holds
// nothing.
func TestAReleaseWakesWhoeverStillWaits(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		one, two := newLimiter(t, b), newLimiter(t, b)
		h := acquire(t, one, "k", exports, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := two.Acquire(ctx, "k", exports, 2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, two.Stats().Waiting)
		time.AfterFunc(time.Second+time.Millisecond, h.Release)
		start := time.Now()
		_, err = two.Acquire(t.Context(), "k", exports, 2)
		require.NoError(t, err)
		require.Equal(t, time.Second+time.Millisecond, time.Since(start))
	})
}

// A ctx that ends between the grant and the return leaves no place held.
func TestContextsThatEndWithTheGrantLeaveNothing(t *testing.T) {
	for name, b := range map[string]window.Backend{"memory": newMemory(t), "remote": newRemote(t)} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, b)
			limit := inflight.Limit{Max: 1}
			for i := range 2000 {
				h, err := l.Acquire(t.Context(), "k", limit, 1)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() {
					if h, err := l.Acquire(ctx, "k", limit, 1); err == nil {
						h.Release()
					}
				})
				if i%2 == 0 {
					runtime.Gosched()
				}
				all.Go(h.Release)
				all.Go(cancel)
				all.Wait()
			}
			h, err := l.Acquire(t.Context(), "k", limit, 1)
			require.NoError(t, err)
			h.Release()
			require.Eventually(t, func() bool {
				s, err := l.Peek(t.Context(), "k", limit)
				return err == nil && s.InUse == 0 && s.Waiting == 0 && l.Stats() == inflight.Stats{}
			}, 10*time.Second, time.Millisecond, "%+v", l.Stats())
		})
	}
}

func TestContextEndsWithThePlace(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		l := newLimiter(t, b)
		type key struct{}
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
		defer cancel()
		h, err := l.Acquire(parent, "k", exports, 1)
		require.NoError(t, err)
		require.Equal(t, 7, h.Context().Value(key{}))
		require.NoError(t, h.Context().Err())
		h.Release()
		require.ErrorIs(t, context.Cause(h.Context()), context.Canceled)
		h, err = l.Acquire(parent, "k", exports, 1)
		require.NoError(t, err)
		h.Release()
		require.ErrorIs(t, h.Context().Err(), context.Canceled, "a context that is asked for later")
		h, err = l.Acquire(parent, "k", exports, 1)
		require.NoError(t, err)
		ctx := h.Context()
		cancel()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.True(t, h.Valid(), "the place is held until it is released")
		h.Release()
	})
}

func TestCloseReleasesAll(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		one, two := inflight.New(b), newLimiter(t, b)
		h := acquire(t, one, "k", exports, 2)
		ctx := h.Context()
		errs := make(chan error, 4)
		for range 3 {
			go func() {
				_, err := one.Acquire(t.Context(), "k", exports, 1)
				errs <- err
			}()
		}
		synctest.Wait()
		require.NoError(t, one.Close())
		require.NoError(t, one.Close())
		for range 3 {
			require.ErrorIs(t, <-errs, throttr.ErrClosed)
		}
		require.False(t, h.Valid())
		require.ErrorIs(t, context.Cause(ctx), throttr.ErrClosed)
		h.Release()
		acquire(t, two, "k", exports, 2)
		_, _, err := one.TryAcquire(t.Context(), "k", exports, 1)
		require.ErrorIs(t, err, throttr.ErrClosed)
		_, err = one.Acquire(t.Context(), "k", exports, 1)
		require.ErrorIs(t, err, throttr.ErrClosed)
		_, err = one.Peek(t.Context(), "k", exports)
		require.ErrorIs(t, err, throttr.ErrClosed)
	})
}

// A holder knows that its Limiter is closed before others can have its places.
func TestHoldersKnowOfCloseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithClock(time.Now))
		other := inflight.New(b)
		defer other.Close()
		var taken uint64
		l := inflight.New(b, inflight.WithObserver(func(_ context.Context, e inflight.Event) {
			if e.Kind == inflight.Released {
				taken += other.Stats().InUse
			}
		}))
		one := inflight.Limit{Max: 1}
		_, ok, err := l.TryAcquire(t.Context(), "k", one, 1)
		require.True(t, ok, err)
		go func() {
			h, err := other.Acquire(t.Context(), "k", one, 1)
			require.NoError(t, err)
			h.Release()
		}()
		synctest.Wait()
		l.Close()
		require.Zero(t, taken)
	})
}

// While the breaker is open, Close asks the store for nothing but a trial. Before, it tries until the breaker opens.
func TestCloseDoesNotWaitForAStoreThatIsAway(t *testing.T) {
	const keys = 300 // more than share an exchange
	closing := func(t *testing.T, fail func(r *remote, l *inflight.Limiter)) (took time.Duration, calls int64) {
		synctest.Test(t, func(t *testing.T) {
			r := newRemote(t)
			l := inflight.New(r, inflight.WithLogger(nil), inflight.WithTimeout(50*time.Millisecond))
			var holds []*inflight.Hold
			for i := range keys {
				holds = append(holds, acquire(t, l, fmt.Sprint(i), exports, 1))
			}
			fail(r, l)
			start, before := time.Now(), r.calls.Load()
			require.NoError(t, l.Close())
			took, calls = time.Since(start), r.calls.Load()-before
			for _, h := range holds {
				require.False(t, h.Valid())
				h.Release()
			}
			require.Zero(t, l.Stats())
		})
		return took, calls
	}
	open := func(r *remote, l *inflight.Limiter) {
		for range 3 {
			_, _, err := l.TryAcquire(context.Background(), "x", exports, 1)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
	}

	took, calls := closing(t, func(r *remote, l *inflight.Limiter) {
		r.away.Store(true)
		open(r, l)
	})
	require.Zero(t, took, "the breaker is open")
	require.LessOrEqual(t, calls, int64(1), "but for a trial, the store is not asked")

	took, _ = closing(t, func(r *remote, l *inflight.Limiter) { r.away.Store(true) })
	require.Less(t, took, 100*time.Millisecond, "three failures, and the pauses between them")

	took, _ = closing(t, func(r *remote, l *inflight.Limiter) { r.stall = make(chan struct{}) })
	require.Less(t, took, 300*time.Millisecond, "three timeouts, and the pauses between them")

	took, _ = closing(t, func(r *remote, l *inflight.Limiter) {
		r.stall = make(chan struct{})
		open(r, l)
		time.Sleep(100 * time.Millisecond) // a probe
	})
	require.LessOrEqual(t, took, 100*time.Millisecond, "a probe or a trial")
}

func TestPlacesAreLostAfterThreeQuartersOfALease(t *testing.T) {
	for offset := range 10 {
		synctest.Test(t, func(t *testing.T) {
			r := newRemote(t)
			l := newLimiter(t, r)
			h := acquire(t, l, "k", exports, 2)
			ctx := h.Context()
			time.Sleep(exports.Lease * time.Duration(offset) / 10)
			r.away.Store(true)
			away := time.Now()
			<-ctx.Done()
			held := time.Since(away)
			require.ErrorIs(t, context.Cause(ctx), inflight.ErrLost)
			require.False(t, h.Valid())
			require.GreaterOrEqual(t, held, exports.Lease*3/4)
			require.Less(t, held, exports.Lease)
			require.EqualValues(t, 2, l.Stats().Lost)
			require.Zero(t, l.Stats().InUse)
			r.away.Store(false)
			time.Sleep(exports.Lease)
			acquire(t, l, "k", exports, 2)
			require.False(t, h.Valid())
			h.Release()
			synctest.Wait()
			denied(t, l, "k", exports, 1)
		})
	}
}

// A process that stands still believes nothing that others may have by now.
func TestAnAnswerThatIsLateIsOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t)
		l := newLimiter(t, r)
		r.after = func([]window.Claim) { time.Sleep(exports.Lease) } // however short the timeout is
		_, _, err := l.TryAcquire(t.Context(), "k", exports, 1)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		r.after = nil
		time.Sleep(exports.Lease)
		require.Zero(t, l.Stats().InUse)
		acquire(t, newLimiter(t, r.Backend), "k", exports, 2)
	})
}

// An exchange that has no answer because this process stood still is no outage: the policy decides nothing.
func TestThePolicyIsNotForAProcessThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := failing{newRemote(t), outage.ErrStill}
		l := newLimiter(t, b, inflight.WithPolicy(inflight.Admit))
		for range 5 {
			_, _, err := l.TryAcquire(t.Context(), "bad", exports, 1)
			require.ErrorIs(t, err, outage.ErrStill)
		}
		require.False(t, acquire(t, l, "good", exports, 1).Degraded())
	})
}

// A store that can't be told that nothing is held knows after a lease, so the key needs no room any more.
func TestKeysAreForgottenWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t)
		l := newLimiter(t, r, inflight.WithMaxKeys(10))
		r.away.Store(true)
		for i := range 20 {
			_, _, err := l.TryAcquire(t.Context(), fmt.Sprint(i), inflight.Limit{Max: 1, Lease: 20 * time.Millisecond}, 1)
			require.NotErrorIs(t, err, window.ErrFull)
			time.Sleep(60 * time.Millisecond)
		}
		require.LessOrEqual(t, l.Stats().Keys, 1)
	})
}

func TestPeekIsBoundedAsExchangesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t)
		l := newLimiter(t, r, inflight.WithTimeout(time.Second))
		r.stall = make(chan struct{})
		for range 3 {
			begun := time.Now()
			_, err := l.Peek(t.Context(), "k", exports)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
			require.LessOrEqual(t, time.Since(begun), time.Second)
		}
		calls := r.calls.Load()
		_, err := l.Peek(t.Context(), "k", exports)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.LessOrEqual(t, r.calls.Load(), calls+1, "but for a probe, the store is not asked")
	})
}

func TestWhileTheStoreIsAwayThePolicyDecides(t *testing.T) {
	four := inflight.Limit{Max: 8, Lease: 4 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t)
		var log strings.Builder
		refuse := newLimiter(t, r, inflight.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		shares := newLimiter(t, r, inflight.WithPolicy(inflight.Share), inflight.WithProcesses(2))
		admit := newLimiter(t, r, inflight.WithPolicy(inflight.Admit))
		h, s := acquire(t, refuse, "k", four, 1), acquire(t, shares, "k", four, 1)
		waits := make(chan error, 1)
		go func() {
			_, err := refuse.Acquire(t.Context(), "k", four, 8)
			waits <- err
		}()
		synctest.Wait()
		r.away.Store(true)
		for range 10 {
			_, _, err := refuse.TryAcquire(t.Context(), "x", four, 1)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
		require.ErrorIs(t, <-waits, throttr.ErrUnavailable)
		calls := r.calls.Load()
		for range 100 {
			_, _, err := refuse.TryAcquire(t.Context(), "x", four, 1)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
		require.Less(t, r.calls.Load(), calls+5, "the breaker is open")
		require.True(t, h.Valid() && s.Valid())

		ctx, cancel := context.WithCancel(t.Context())
		go shares.Acquire(ctx, "k", four, 4)
		synctest.Wait()
		denied(t, shares, "k", inflight.Limit{Max: 6, Lease: four.Lease}, 1) // there is room, but another waits
		cancel()
		synctest.Wait()

		third := acquire(t, shares, "k", four, 3) // its share is 4, and it holds 1
		require.True(t, third.Degraded())
		require.Zero(t, third.Token())
		denied(t, shares, "k", four, 1)
		go func() {
			time.Sleep(2500 * time.Millisecond)
			third.Release()
		}()
		start := time.Now()
		again, err := shares.Acquire(t.Context(), "k", four, 3)
		require.NoError(t, err)
		require.Equal(t, 2500*time.Millisecond, time.Since(start))
		require.True(t, again.Degraded())
		for range 20 {
			require.True(t, acquire(t, admit, "k", four, 1).Degraded())
		}

		go func() {
			_, err := shares.Acquire(t.Context(), "other", four, 8) // the share does not suffice; the store does
			waits <- err
		}()
		r.away.Store(false)
		require.NoError(t, <-waits)
		time.Sleep(time.Second) // each finds out for itself
		_, _, err = refuse.TryAcquire(t.Context(), "k", four, 1)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), `level=WARN msg="throttr: the store is away" store="" error="throttr: the store is unavailable: connection refused" instead="return an error"`)
		require.Contains(t, log.String(), `level=WARN msg="throttr: the store is back"`)
	})
}

// A call that waits outlasts a failure, and Close does: a store that is away for less than three failures is told.
func TestAFailureIsOutlasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t)
		l := inflight.New(r, inflight.WithLogger(nil))
		away := func(d time.Duration) {
			r.away.Store(true)
			time.AfterFunc(d, func() { r.away.Store(false) })
		}
		away(15 * time.Millisecond)
		_, err := l.Acquire(t.Context(), "k", exports, 2)
		require.NoError(t, err)
		away(time.Millisecond)
		require.NoError(t, l.Close())
		acquire(t, newLimiter(t, r), "k", exports, 2)
	})
}

func TestManyHoldersHaveFewGoroutines(t *testing.T) {
	const holders = 10_000
	for name, keys := range map[string]int{"one key": 1, "a key each": holders} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRemote(t)
				before := runtime.NumGoroutine()
				l := newLimiter(t, r)
				limit := inflight.Limit{Max: holders, Lease: time.Second}
				var holds []*inflight.Hold
				for i := range holders {
					holds = append(holds, acquire(t, l, fmt.Sprint(i%keys), limit, 1))
					holds[i].Context()
				}
				for range 20 {
					time.Sleep(limit.Lease / 10) // they are renewed
					require.LessOrEqual(t, runtime.NumGoroutine()-before, 20)
				}
				for _, h := range holds {
					require.True(t, h.Valid())
					h.Release()
				}
				time.Sleep(time.Second)
				require.Equal(t, inflight.Stats{}, l.Stats())
			})
		})
	}
}

// Those who want something while an exchange is in flight share the next one. Only if they are many, it is made at
// once.
func TestManyKeysHaveTwoExchangesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t)
		r.stall = make(chan struct{})
		l := newLimiter(t, r)
		var all sync.WaitGroup
		keys := 0
		for _, step := range []struct{ more, calls int }{{1, 1}, {31, 1}, {1, 2}, {200, 2}} {
			for range step.more {
				keys++
				key := fmt.Sprint(keys)
				all.Go(func() { acquire(t, l, key, exports, 1) })
			}
			synctest.Wait()
			require.EqualValues(t, step.calls, r.calls.Load(), "with %d keys", keys)
		}
		close(r.stall)
		all.Wait()
		require.EqualValues(t, keys, l.Stats().InUse)
	})
}

func TestObserverSeesWhatHappens(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		var mu sync.Mutex
		var events []string
		l := newLimiter(t, b, inflight.WithObserver(func(_ context.Context, e inflight.Event) {
			mu.Lock()
			defer mu.Unlock()
			text := e.Kind.String()
			if e.Key != "" {
				text = fmt.Sprintf("%s %s %d of %v: waited %v, held %v", text, e.Key, e.N, e.Limit, e.Waited, e.Held)
			}
			events = append(events, text)
		}))
		h := acquire(t, l, "k", exports, 2)
		denied(t, l, "k", exports, 1)
		go func() {
			time.Sleep(3 * time.Second)
			h.Release()
			h.Release()
		}()
		h2, err := l.Acquire(t.Context(), "k", exports, 1)
		require.NoError(t, err)
		if r, ok := b.(*remote); ok {
			r.away.Store(true)
			<-h2.Context().Done()
		} else {
			time.Sleep(time.Second)
			h2.Release()
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.ElementsMatch(t, []string{
			"acquired k 2 of exports: 2 at a time: waited 0s, held 0s",
			"denied k 1 of exports: 2 at a time: waited 0s, held 0s",
			"released k 2 of exports: 2 at a time: waited 0s, held 3s",
			"acquired k 1 of exports: 2 at a time: waited 3s, held 0s",
		}, events[:4])
		if _, ok := b.(*remote); !ok {
			require.Equal(t, []string{"released k 1 of exports: 2 at a time: waited 0s, held 1s"}, events[4:])
			return
		}
		require.Equal(t, "unavailable", events[4])
		require.Contains(t, events[5], "lost k 1 of exports: 2 at a time: waited 0s, held 990")
	})
}

// A Hold that ends before the observer knows of it is told as any other. If the observer panics, nothing is held.
func TestObserverIsToldOfEachEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []inflight.Kind
		var during func()
		r := newRemote(t)
		l := newLimiter(t, r, inflight.WithObserver(func(_ context.Context, e inflight.Event) {
			switch e.Kind {
			case inflight.Acquired:
				during()
			case inflight.Lost, inflight.Released:
				ends = append(ends, e.Kind)
			}
		}))
		acquire := func() {
			h, _, err := l.TryAcquire(t.Context(), "k", exports, 1)
			require.NoError(t, err)
			require.False(t, h.Valid())
		}
		during = func() { panic("a mistake") }
		require.Panics(t, acquire)
		synctest.Wait()
		require.Equal(t, inflight.Stats{}, l.Stats())
		during = func() {
			r.away.Store(true)
			time.Sleep(exports.Lease)
			r.away.Store(false)
		}
		acquire()
		require.EqualValues(t, 1, l.Stats().Lost)
		time.Sleep(exports.Lease)
		during = func() { l.Close() }
		acquire()
		require.Equal(t, []inflight.Kind{inflight.Lost, inflight.Released}, ends)
	})
}

func TestOptionsPanicOnMistakes(t *testing.T) {
	for name, f := range map[string]func(){
		"nil backend":  func() { inflight.New(nil) },
		"nil option":   func() { inflight.New(memory.New(), nil) },
		"policy":       func() { inflight.WithPolicy(7) },
		"processes":    func() { inflight.WithProcesses(-1) },
		"keys":         func() { inflight.WithMaxKeys(-1) },
		"waiting":      func() { inflight.WithMaxWaiting(-1) },
		"timeout":      func() { inflight.WithTimeout(-1) },
		"failures":     func() { inflight.WithBreaker(-1, 0) },
		"breaker wait": func() { inflight.WithBreaker(0, -1) },
	} {
		require.Panics(t, f, name)
	}
}

// Many goroutines of several limiters hold no more than Max, and leave nothing.
func TestConcurrentHoldersAreNeverOver(t *testing.T) {
	for name, b := range map[string]window.Backend{"memory": newMemory(t), "remote": newRemote(t)} {
		t.Run(name, func(t *testing.T) {
			limit := inflight.Limit{Max: 5, Lease: 10 * time.Second}
			var held [3]atomic.Int64
			var all sync.WaitGroup
			for range 3 {
				l := newLimiter(t, b)
				for g := range 8 {
					all.Go(func() {
						for i := range 200 {
							n, k := uint64(1+(g+i)%3), i%3
							h, err := l.Acquire(t.Context(), fmt.Sprint(k), limit, n)
							if err != nil {
								t.Error(err)
								return
							}
							if got := held[k].Add(int64(n)); got > int64(limit.Max) || !h.Valid() {
								t.Errorf("%d of %d are held, valid %v", got, limit.Max, h.Valid())
							}
							runtime.Gosched()
							held[k].Add(-int64(n))
							h.Release()
						}
					})
				}
			}
			all.Wait()
		})
	}
}

// Keys and waiters are bounded, which is no outage.
func TestThePolicyIsNotForWhatTheBoundsRefuse(t *testing.T) {
	for _, policy := range []inflight.Policy{inflight.Refuse, inflight.Share, inflight.Admit} {
		synctest.Test(t, func(t *testing.T) {
			r := newRemote(t)
			l := newLimiter(t, r, inflight.WithPolicy(policy), inflight.WithMaxKeys(1), inflight.WithMaxWaiting(1))
			acquire(t, l, "a", exports, 2)
			_, ok, err := l.TryAcquire(t.Context(), "b", exports, 1)
			require.False(t, ok)
			require.ErrorIs(t, err, throttr.ErrFull)
			ctx, cancel := context.WithCancel(t.Context())
			go l.Acquire(ctx, "a", exports, 1)
			synctest.Wait()
			_, ok, err = l.TryAcquire(t.Context(), "a", exports, 1)
			require.False(t, ok)
			require.ErrorIs(t, err, throttr.ErrOverloaded)
			cancel()
			synctest.Wait()
		})
	}
}
