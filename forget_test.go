package throttr_test

import (
	"cmp"
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
