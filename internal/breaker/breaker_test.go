package breaker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/breaker"
)

var errAttempt = errors.New("nobody there")

func TestACircuitOpensWithAFailureAndClosesWithASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(time.Second, time.Second)
		require.NoError(t, b.Err())
		b.Set(errAttempt)
		require.ErrorIs(t, b.Err(), errAttempt)

		other := errors.New("nobody there again")
		results := []error{other, nil}
		b.Retry(t.Context(), func() error {
			require.Error(t, b.Err(), "open until an attempt has succeeded")
			if len(results) == 1 {
				require.ErrorIs(t, b.Err(), other, "why the last attempt failed")
				require.NotErrorIs(t, b.Err(), errAttempt)
			}
			err := results[0]
			results = results[1:]
			return err
		})
		require.Empty(t, results)
		require.NoError(t, b.Err())
	})
}

func TestAttemptsBackOffUntilOneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(100*time.Millisecond, time.Second)
		b.Set(errAttempt)
		var pauses []time.Duration
		last := time.Now()
		b.Retry(t.Context(), func() error {
			pauses = append(pauses, time.Since(last))
			time.Sleep(3 * time.Second) // the attempt itself is no part of a pause
			last = time.Now()
			if len(pauses) < 7 {
				return errAttempt
			}
			return nil
		})
		require.NoError(t, b.Err())
		require.Len(t, pauses, 7)
		for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000} {
			want *= time.Millisecond
			require.InDelta(t, want, pauses[i], float64(want/10), "pause %d", i)
		}
	})
}

func TestTheContextEndsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(time.Hour, time.Hour)
		b.Set(errAttempt)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		b.Retry(ctx, func() error {
			t.Error("an attempt during the pause")
			return nil
		})
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, b.Err(), errAttempt)
	})
}
