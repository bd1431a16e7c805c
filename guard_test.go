package throttr_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// What wraps the memory of the process, or leases, may wait: it is a backend like any other.
type blockingMemory struct{ *memory.Backend }

func (blockingMemory) Take(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (w window.Window, err error) {
	return w, hangs(ctx, call{})
}

type blockingLeases struct{ *lease.Backend }

func (blockingLeases) Take(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (w window.Window, err error) {
	return w, hangs(ctx, call{})
}

func TestAWrapperThatBlocksEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, store := inProcess(t, memory.WithClock(time.Now)), newDistant(t)
		store.be(hangs)
		leases := lease.New(m, lease.WithAge(time.Hour))
		defer leases.Close()
		limit := throttr.Limit{Max: 1_000_000, Scale: time.Hour}
		held := throttr.NewRateLimit(leases)
		for range 100 {
			_, err := held.Take(t.Context(), "k", limit, 1)
			require.NoError(t, err)
		}
		require.Positive(t, leases.Blocks().Held)
		for _, b := range []throttr.Backend{blockingMemory{m}, blockingLeases{leases}, store} {
			limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil))
			for i := range 4 {
				begun := time.Now()
				_, err := limiter.Take(t.Context(), "k", limit, 1)
				require.ErrorIs(t, err, throttr.ErrUnavailable)
				require.Equal(t, i == 3, time.Since(begun) == 0, "%T: the circuit is open after three calls", b)
			}
		}
	})
}

// The probing of a store that is away does not keep a RateLimit that nobody uses.
func TestAnUnusedRateLimitEndsItsProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newDistant(t)
		store.be(isDown)
		limiter := throttr.NewRateLimit(store, throttr.WithLogger(nil), throttr.WithObserver(func(context.Context, throttr.Event) {}))
		for range 3 {
			_, err := limiter.Hit(t.Context(), "k", time.Hour, 10)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
		used := weak.Make(limiter)
		limiter = nil
		time.Sleep(time.Minute)
		runtime.GC()
		require.Nil(t, used.Value())
		asked := store.asked.Load()
		time.Sleep(time.Hour)
		require.Equal(t, asked, store.asked.Load())
	})
}
