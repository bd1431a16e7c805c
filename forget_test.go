package throttr_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// A customer whose plan became unlimited, and falls back, does not find what was counted before.
func TestForgetOfALimitThatBecameUnlimitedEndsItsCount(t *testing.T) {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	plan := throttr.Limit{Name: "plan", Max: 1, Scale: time.Hour}
	_, err := limiter.Take(t.Context(), "k", plan, 1)
	require.NoError(t, err)
	raised := plan
	raised.Max = throttr.Unlimited
	require.NoError(t, limiter.Forget(t.Context(), "k", raised))
	res, err := limiter.Take(t.Context(), "k", plan, 1)
	require.NoError(t, err)
	require.True(t, res.Allowed)
}

// The same with a bucket, whose burst is too large for the Max that Forget has in place of Unlimited, and on a server, which can't keep
// Unlimited.
func TestForgetNeedsNoMax(t *testing.T) {
	backend := memory.New()
	defer backend.Close()
	for name, c := range map[string]struct {
		backend throttr.Backend
		limit   throttr.Limit
	}{
		"bucket": {backend, throttr.Limit{Max: 1_000_000, Scale: 24 * time.Hour, Burst: 100_000, Algorithm: throttr.TokenBucket}},
		"server": {openURL(t, "throttr://"+mockserver.RunT(t).Addr()), throttr.Limit{Max: 1000, Scale: time.Hour}},
	} {
		limiter := throttr.NewRateLimit(c.backend)
		most := cmp.Or(c.limit.Burst, c.limit.Max)
		_, err := limiter.Take(t.Context(), "k", c.limit, most)
		require.NoError(t, err, name)
		raised := c.limit
		raised.Max = throttr.Unlimited
		require.NoError(t, limiter.Check(raised), name)
		require.NoError(t, limiter.Forget(t.Context(), "k", raised), name)
		res, err := limiter.Take(t.Context(), "k", c.limit, most)
		require.NoError(t, err, name)
		require.True(t, res.Allowed, name)
	}
}
