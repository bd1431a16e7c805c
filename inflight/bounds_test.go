package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// The bound of a backend in memory is that of all its keys, however they are spread over its shards.
func TestMaxKeysOfMemoryIsExact(t *testing.T) {
	for _, most := range []int{1, 10, 1000} {
		b := memory.New(memory.WithMaxKeys(most))
		l := inflight.New(b)
		holds := make([]*inflight.Hold, most)
		for range 2 {
			for i := range holds {
				holds[i] = acquire(t, l, fmt.Sprint("customer:", i), exports, 1)
			}
			_, _, err := l.TryAcquire(t.Context(), "more", exports, 1)
			require.ErrorIs(t, err, throttr.ErrFull)
			for _, h := range holds {
				h.Release()
			}
		}
		l.Close()
		b.Close()
	}
}

// What a key needs is used again by the next one.
func TestAPairInMemoryAllocatesAHold(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	l := newLimiter(t, newMemory(t))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		h, _, _ := l.TryAcquire(t.Context(), "k", exports, 1)
		h.Release()
	}), 2.0)
}

// The bound on calls that wait counts those that wait, and not those that were refused or served.
func TestMaxWaitingCountsThoseWhoWait(t *testing.T) {
	each(t, func(t *testing.T, b window.Backend) {
		l := newLimiter(t, b, inflight.WithMaxWaiting(2))
		for range 3 {
			h := acquire(t, l, "k", exports, 2)
			served := make(chan error, 2)
			for range 2 {
				go func() {
					h, err := l.Acquire(t.Context(), "k", exports, 1)
					served <- err
					h.Release()
				}()
			}
			synctest.Wait()
			for range 3 {
				_, err := l.Acquire(t.Context(), "k", exports, 1)
				require.ErrorIs(t, err, throttr.ErrOverloaded)
			}
			require.Equal(t, 2, l.Stats().Waiting)
			h.Release()
			require.NoError(t, <-served)
			require.NoError(t, <-served)
			synctest.Wait()
			require.Zero(t, l.Stats().Waiting)
		}
	})
}

// Each number of an option may be 0, 1, or the largest one.
func TestOptionsAtTheirBounds(t *testing.T) {
	for name, options := range map[string][]inflight.Option{
		"0": {inflight.WithProcesses(0), inflight.WithMaxKeys(0), inflight.WithMaxWaiting(0), inflight.WithTimeout(0), inflight.WithBreaker(0, 0)},
		"1": {inflight.WithProcesses(1), inflight.WithMaxKeys(1), inflight.WithMaxWaiting(1), inflight.WithTimeout(time.Second), inflight.WithBreaker(1, 1)},
		"largest": {
			inflight.WithProcesses(math.MaxInt), inflight.WithMaxKeys(math.MaxInt), inflight.WithMaxWaiting(math.MaxInt),
			inflight.WithTimeout(math.MaxInt64), inflight.WithBreaker(math.MaxInt, math.MaxInt64),
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b window.Backend) {
				l := newLimiter(t, b, append(options, inflight.WithPolicy(inflight.Share))...)
				limit := inflight.Limit{Max: window.MaxPlaces, Lease: window.MaxLease}
				h := acquire(t, l, "k", limit, window.MaxPlaces)
				denied(t, l, "k", limit, 1)
				_, err := l.Peek(t.Context(), "k", limit)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				_, err = l.Acquire(ctx, "k", limit, 1)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				h.Release()
				synctest.Wait()
				acquire(t, l, "k", limit, 1).Release()
				if r, ok := b.(*remote); ok {
					r.away.Store(true)
					for range 5 {
						_, _, err := l.TryAcquire(t.Context(), "k", limit, 1)
						require.True(t, err == nil || errors.Is(err, throttr.ErrUnavailable), "%v", err)
					}
					r.away.Store(false)
				}
			})
		})
	}
}

// A backend in memory that is closed refuses new places, and is not asked again for what it can't do.
func TestMemoryThatIsClosedIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithClock(time.Now))
		l := newLimiter(t, b)
		h := acquire(t, l, "k", exports, 1)
		require.NoError(t, b.Close())
		for _, key := range []string{"k", "other"} {
			_, err := l.Acquire(t.Context(), key, exports, 1)
			require.ErrorIs(t, err, throttr.ErrClosed)
		}
		require.True(t, h.Valid(), "nobody else can have it")
		h.Release()
		require.Equal(t, inflight.Stats{}, l.Stats())
	})
}
