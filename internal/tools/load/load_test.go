package load_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// sleep is an operation that takes 1 ms in the first goroutine, 2 ms in the second, and so on.
func sleep(_ context.Context, worker int, _ uint64) error {
	time.Sleep(time.Duration(worker+1) * time.Millisecond)
	return nil
}

func TestOperationsThatEndWithinDurationCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		res, err := load.Run(t.Context(), load.Config{
			Goroutines: 2, Warmup: 10*time.Millisecond + time.Microsecond, Duration: 100 * time.Millisecond,
		}, sleep)
		require.NoError(t, err)
		require.NoError(t, res.FirstError)
		require.EqualValues(t, 100+50, res.Operations)
		require.Zero(t, res.Errors)
		require.Equal(t, 100*time.Millisecond, res.Elapsed)
		require.InDelta(t, 1500, res.PerSecond, 1e-9)
		require.InEpsilon(t, time.Millisecond, res.P50, 0.01)
		require.InEpsilon(t, 2*time.Millisecond, res.P99, 0.01)
		require.InEpsilon(t, 2*time.Millisecond, res.P999, 0.01)
		require.InEpsilon(t, 2*time.Millisecond, res.Max, 0.01)
		require.Equal(t, 112*time.Millisecond, time.Since(began), "Run waits for the last operation")
	})
}

func TestOperationsAreNumberedByGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var next [3]uint64
		_, err := load.Run(t.Context(), load.Config{Goroutines: 3, Warmup: time.Second, Duration: time.Second},
			func(ctx context.Context, worker int, i uint64) error {
				if i != next[worker] {
					t.Errorf("worker %d: %d instead of %d", worker, i, next[worker])
				}
				next[worker]++
				return sleep(ctx, worker, i)
			})
		require.NoError(t, err)
		require.GreaterOrEqual(t, next[0], uint64(2000))
	})
}

func TestFailedOperationsAreCountedSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, err := load.Run(t.Context(), load.Config{Goroutines: 1, Warmup: 10500 * time.Microsecond, Duration: 100 * time.Millisecond},
			func(ctx context.Context, worker int, i uint64) error {
				sleep(ctx, worker, i)
				if i%2 == 0 {
					return fmt.Errorf("operation %d", i)
				}
				return nil
			})
		require.NoError(t, err)
		require.EqualValues(t, 50, res.Operations)
		require.EqualValues(t, 50, res.Errors)
		require.EqualError(t, res.FirstError, "operation 10", "the first that counts")
		require.InDelta(t, 500, res.PerSecond, 1e-9)
	})
}

func TestRunEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10500*time.Microsecond, cause)
		defer cancel()
		res, err := load.Run(ctx, load.Config{Goroutines: 1, Duration: time.Hour}, sleep)
		require.ErrorIs(t, err, cause)
		require.EqualValues(t, 10, res.Operations, "the result until then")

		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		res, err = load.Run(ctx, load.Config{Goroutines: 1, Warmup: time.Hour, Duration: time.Hour}, sleep)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, res.Operations)
		require.Zero(t, res.PerSecond)
	})
}

// sink keeps an allocation from being optimized away.
var sink []byte

func TestResultContainsProcessUsage(t *testing.T) {
	var res load.Result
	for d := 100 * time.Millisecond; res.Operations < 10_000; d *= 2 { // a busy machine may do little in a short time
		var err error
		res, err = load.Run(t.Context(), load.Config{Goroutines: 1, Duration: d},
			func(context.Context, int, uint64) error {
				sink = make([]byte, 1000)
				return nil
			})
		require.NoError(t, err)
	}
	require.InDelta(t, 1, res.AllocsPerOperation, 0.5)
	require.InDelta(t, 1024, res.BytesPerOperation, 500)
	if runtime.GOOS != "windows" && runtime.GOOS != "plan9" {
		require.Positive(t, res.CPUPerOperation)
	}
	require.Positive(t, res.P50)
}

func TestLoopDoesNotAllocate(t *testing.T) {
	var res load.Result
	for d := 100 * time.Millisecond; res.Operations < 200_000; d *= 2 { // a busy machine may do little in a short time
		var err error
		res, err = load.Run(t.Context(), load.Config{Goroutines: 4, Duration: d},
			func(context.Context, int, uint64) error { return nil })
		require.NoError(t, err)
	}
	require.Less(t, res.AllocsPerOperation, 0.001)
}

func TestInvalidConfigIsAnError(t *testing.T) {
	for _, cfg := range []load.Config{
		{}, {Goroutines: 1}, {Duration: 1}, {Goroutines: -1, Duration: 1}, {Goroutines: 1, Duration: -1},
		{Goroutines: 1, Duration: 1, Warmup: -1},
	} {
		_, err := load.Run(t.Context(), cfg, sleep)
		require.Error(t, err, cfg)
	}
}

func TestFailureNamesFirstError(t *testing.T) {
	require.NoError(t, load.Result{}.Failure())
	err := load.Result{Errors: 2, FirstError: context.Canceled}.Failure()
	require.EqualError(t, err, "2 operations failed, the first: context canceled")
	require.ErrorIs(t, err, context.Canceled)
}

func TestCombinedResultIsMedianOrSum(t *testing.T) {
	var results []load.Result
	for i, want := range []time.Duration{9, 7, 7, 6} { // of 9; 9 and 5; 9, 5 and 7; 9, 5, 7 and 0
		n := []time.Duration{9, 5, 7, 0}[i]
		results = append(results, load.Result{Operations: 1, Errors: 2, PerSecond: float64(n), P99: n, Max: n, Elapsed: n})
		c := load.Combine(results)
		require.InDelta(t, want, c.PerSecond, 1e-9)
		require.Equal(t, want, c.P99)
		require.EqualValues(t, i+1, c.Operations)
		require.EqualValues(t, 2*(i+1), c.Errors)
		require.EqualValues(t, 9, c.Max)
	}
}

func TestFormattedDurationHasThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1.23µs", 123456: "123µs", 1234567: "1.23ms", 12 * time.Second: "12s", 1234 * time.Second: "20m34s",
	} {
		require.Equal(t, want, load.FormatDuration(d))
	}
}
