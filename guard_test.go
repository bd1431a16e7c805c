package throttr_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
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
			decided(t)(held.Take(t.Context(), "k", limit, 1))
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

// Of a TakeAll on two servers of which one is away, the error names that one, and its circuit alone is opened.
func TestATakeAllBlamesTheServerThatIsAway(t *testing.T) {
	for name, known := range map[string]bool{"known windows": true, "new windows": false} {
		testkit.Bubble(t, name, func(t *testing.T) {
			servers := testkit.Several(t, 2)
			backend := testkit.Client[uint16](t, servers.Over(throttr.Config{MaxRetries: -1})).Backend()
			limiter := throttr.NewRateLimit(backend, throttr.WithLogger(nil))
			limit := throttr.Limit{Max: 100, Scale: time.Hour}
			keys := map[string]string{}
			for i := range 100 {
				key := strconv.Itoa(i)
				keys[backend.Part(key)] = key
			}
			there, away := keys[servers[0].Addr()], keys[servers[1].Addr()]
			takes := []throttr.Take{limit.For(there, 1), limit.For(away, 1)}
			if known {
				ok, _ := allDecided(t)(limiter.TakeAll(t.Context(), takes...))
				require.True(t, ok)
			}
			require.NoError(t, servers[1].Close())
			for range 5 {
				_, _, err := limiter.TakeAll(t.Context(), takes...)
				require.ErrorIs(t, err, throttr.ErrUnavailable)
				var request *throttr.RequestError
				require.ErrorAs(t, err, &request)
				require.Equal(t, servers[1].Addr(), request.Server)
				require.Equal(t, away, request.Key)
			}
			decided(t)(limiter.Take(t.Context(), there, limit, 1)) // by the circuit of the server that is there
		})
	}
}
