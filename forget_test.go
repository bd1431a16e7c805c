package throttr_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
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
