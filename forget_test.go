package throttr_test

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// A customer whose plan became unlimited, and falls back, does not find what was counted before: also with a bucket,
// whose burst is too large for the Max that Forget has in place of Unlimited, and on a server, which can't keep
// Unlimited.
func TestForgetNeedsNoMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory := throttr.NewRateLimit(inProcess(t))
		for name, c := range map[string]struct {
			limiter *throttr.RateLimit
			limit   throttr.Limit
		}{
			"memory": {inMemory, throttr.Limit{Max: 1, Scale: time.Hour}},
			"bucket": {inMemory, throttr.Limit{Max: 1_000_000, Scale: 24 * time.Hour, Burst: 100_000, Algorithm: throttr.TokenBucket}},
			"server": {testkit.Limiter[uint16](t, testkit.InMemory(t)), throttr.Limit{Max: 1000, Scale: time.Hour}},
		} {
			most := cmp.Or(c.limit.Burst, c.limit.Max)
			raised := c.limit
			raised.Max = throttr.Unlimited
			require.NoError(t, c.limiter.Check(raised), name)
			for range 2 {
				res, err := c.limiter.Take(t.Context(), "k", c.limit, most)
				require.NoError(t, err, name)
				require.True(t, res.Allowed, name)
				require.NoError(t, c.limiter.Forget(t.Context(), "k", raised), name)
			}
		}
	})
}

// A store that hangs holds up Forget for a while only, also if the caller's ctx has no end, and the fallback forgets.
// What the fallback could not forget is an error, as it would count in the next outage.
func TestForgetIsBoundedAndTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, fallback := newDistant(t), newDistant(t)
		limiter := throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithProcesses(2), throttr.WithLogger(nil))
		limit := throttr.Limit{Max: 4, Scale: time.Hour}
		var most uint64
		fallback.be(func(_ context.Context, c call) error { most = c.limit.Max; return nil })
		store.be(hangs)
		begun := time.Now()
		err := limiter.Forget(context.Background(), "k", limit)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.EqualValues(t, 2, most)

		store.be(nil)
		require.NoError(t, limiter.Forget(t.Context(), "k", limit))
		fallback.be(fails(errDown))
		require.ErrorIs(t, limiter.Forget(t.Context(), "k", limit), errDown)
	})
}
