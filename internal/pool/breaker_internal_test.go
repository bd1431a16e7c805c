package pool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errAttempt = errors.New("nobody there")

func TestACircuitOpensWithAFailureAndClosesWithASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{minBackoff: time.Second, maxBackoff: time.Second}
		require.NoError(t, b.err())
		b.open(errAttempt)
		require.ErrorIs(t, b.err(), ErrUnavailable)
		require.ErrorIs(t, b.err(), errAttempt)

		other := errors.New("nobody there again")
		results := []error{other, nil}
		b.retry(t.Context(), func() error {
			require.ErrorIs(t, b.err(), ErrUnavailable, "open until an attempt has succeeded")
			if len(results) == 1 {
				require.ErrorIs(t, b.err(), other, "why the last attempt failed")
				require.NotErrorIs(t, b.err(), errAttempt)
			}
			err := results[0]
			results = results[1:]
			return err
		})
		require.Empty(t, results)
		require.NoError(t, b.err())
	})
}

func TestAttemptsBackOffUntilOneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{minBackoff: 100 * time.Millisecond, maxBackoff: time.Second}
		b.open(errAttempt)
		var pauses []time.Duration
		last := time.Now()
		b.retry(t.Context(), func() error {
			pauses = append(pauses, time.Since(last))
			time.Sleep(3 * time.Second) // the attempt itself is no part of a pause
			last = time.Now()
			if len(pauses) < 7 {
				return errAttempt
			}
			return nil
		})
		require.NoError(t, b.err())
		require.Len(t, pauses, 7)
		for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000} {
			want *= time.Millisecond
			require.InDelta(t, want, pauses[i], float64(want/10), "pause %d", i)
		}
	})
}

func TestTheContextEndsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{minBackoff: time.Hour, maxBackoff: time.Hour}
		b.open(errAttempt)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		b.retry(ctx, func() error {
			t.Error("an attempt during the pause")
			return nil
		})
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, b.err(), errAttempt)
	})
}
