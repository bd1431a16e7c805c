package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestRateLimitReturnsTheErrorsOfTheBackend(t *testing.T) {
	b := memory.New(memory.WithMaxKeys(1))
	limiter := throttr.NewRateLimit(b)
	hit := func(ctx context.Context, key string, scale time.Duration) error {
		_, err := limiter.Hit(ctx, key, scale, 10)
		return err
	}
	require.NoError(t, hit(t.Context(), "k", time.Minute))
	for i := range time.Duration(16) {
		require.NoError(t, hit(t.Context(), "other", time.Second+i))
	}
	require.ErrorIs(t, hit(t.Context(), "other", time.Minute), window.ErrFull)
	require.ErrorIs(t, hit(t.Context(), "k", 0), window.ErrScale)
	require.ErrorIs(t, hit(t.Context(), "k", 60), window.ErrScale)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, hit(ctx, "k", time.Minute), context.Canceled)
	w, err := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 10), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, w.Count)

	res, err := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits)).Hit(t.Context(), "other", time.Minute, 10)
	require.NoError(t, err)
	require.True(t, res.Allowed && res.Degraded)
	require.NoError(t, b.Close())
	require.ErrorIs(t, hit(t.Context(), "k", time.Minute), window.ErrClosed)
}
