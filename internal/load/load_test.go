package load_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/load"
)

// pass lets the clock of a bubble move on.
func pass(d time.Duration) { <-time.After(d) }

// lasting is an operation that takes a millisecond for each goroutine up to its own.
func lasting(_ context.Context, worker int, _ uint64) error {
	pass(time.Duration(worker+1) * time.Millisecond)
	return nil
}

func TestOperationsCountThatEndWithinTheDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		res, err := load.Run(t.Context(), load.Config{
			Goroutines: 2, Warmup: 10*time.Millisecond + time.Microsecond, Duration: 100 * time.Millisecond,
		}, lasting)
		require.NoError(t, err)
		require.NoError(t, res.FirstError)
		require.EqualValues(t, 100+50, res.Operations)
		require.Zero(t, res.Errors)
		require.Equal(t, 100*time.Millisecond, res.Elapsed)
		require.InDelta(t, 1500, res.PerSecond, 1e-9)
		require.InEpsilon(t, time.Millisecond, res.P50, 1./64)
		require.InEpsilon(t, 2*time.Millisecond, res.P99, 1./64)
		require.InEpsilon(t, 2*time.Millisecond, res.P999, 1./64)
		require.Equal(t, 2*time.Millisecond, res.Max)
		require.Equal(t, 112*time.Millisecond, time.Since(began), "the last operation has ended")
	})
}

func TestEachGoroutineNumbersItsOperations(t *testing.T) {
	for _, batch := range []int{0, 1, 7} {
		synctest.Test(t, func(t *testing.T) {
			var next [3]uint64
			_, err := load.Run(t.Context(), load.Config{Goroutines: 3, Warmup: time.Second, Duration: time.Second, Batch: batch},
				func(ctx context.Context, worker int, i uint64) error {
					if i != next[worker] {
						t.Errorf("worker %d: %d instead of %d", worker, i, next[worker])
					}
					next[worker]++
					return lasting(ctx, worker, i)
				})
			require.NoError(t, err)
			require.GreaterOrEqual(t, next[0], uint64(2000))
		})
	}
}

func TestErrorsAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, err := load.Run(t.Context(), load.Config{Goroutines: 1, Warmup: 10500 * time.Microsecond, Duration: 100 * time.Millisecond},
			func(ctx context.Context, worker int, i uint64) error {
				lasting(ctx, worker, i)
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

func TestABatchLastsEquallyLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, err := load.Run(t.Context(), load.Config{Goroutines: 1, Duration: 100500 * time.Microsecond, Batch: 10},
			func(_ context.Context, _ int, i uint64) error {
				if i%10 == 9 {
					pass(10 * time.Millisecond)
				}
				return nil
			})
		require.NoError(t, err)
		require.EqualValues(t, 100, res.Operations)
		require.Equal(t, time.Millisecond, res.Max)
		require.InEpsilon(t, time.Millisecond, res.P50, 1./64)
	})
}

func TestProgressIsToldEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []load.Progress
		_, err := load.Run(t.Context(), load.Config{
			Goroutines: 1, Warmup: 1500*time.Millisecond + time.Microsecond, Duration: 2500 * time.Millisecond,
			Progress: func(p load.Progress) { told = append(told, p) },
		}, lasting)
		require.NoError(t, err)
		require.Len(t, told, 3)
		for i, p := range told {
			require.Equal(t, i == 0, p.Warming)
			require.Equal(t, time.Duration(max(i, 1))*time.Second, p.Elapsed)
			require.InDelta(t, 1000*max(i, 1), p.Operations, 1)
			require.InDelta(t, 1000, p.PerSecond, 1)
		}
	})
}

func TestTheEndOfTheContextEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10500*time.Microsecond, why)
		defer cancel()
		res, err := load.Run(ctx, load.Config{Goroutines: 1, Duration: time.Hour}, lasting)
		require.ErrorIs(t, err, why)
		require.EqualValues(t, 10, res.Operations, "what was measured until then")

		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		res, err = load.Run(ctx, load.Config{Goroutines: 1, Warmup: time.Hour, Duration: time.Hour}, lasting)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, res.Operations)
		require.Zero(t, res.PerSecond)
	})
}

// sink keeps what is allocated from being optimized away.
var sink []byte

func TestWhatTheProcessUsesIsTold(t *testing.T) {
	var res load.Result
	for d := 100 * time.Millisecond; res.Operations < 10_000; d *= 2 { // a busy machine may do little for a while
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

func TestTheLoopAllocatesNothing(t *testing.T) {
	var res load.Result
	for d := 100 * time.Millisecond; res.Operations < 200_000; d *= 2 { // a busy machine may do little for a while
		var err error
		res, err = load.Run(t.Context(), load.Config{Goroutines: 4, Duration: d},
			func(context.Context, int, uint64) error { return nil })
		require.NoError(t, err)
	}
	require.Less(t, res.AllocsPerOperation, 0.001)
}

func TestWhatCanNotBeRunIsRefused(t *testing.T) {
	for _, cfg := range []load.Config{
		{}, {Goroutines: 1}, {Duration: 1}, {Goroutines: -1, Duration: 1}, {Goroutines: 1, Duration: -1},
		{Goroutines: 1, Duration: 1, Warmup: -1}, {Goroutines: 1, Duration: 1, Batch: -1},
	} {
		_, err := load.Run(t.Context(), cfg, lasting)
		require.Error(t, err, cfg)
	}
}

func TestResultsAreReadFromJSON(t *testing.T) {
	want := load.Result{Operations: 1, Elapsed: time.Second, PerSecond: 1.5, P50: 2, CPUPerOperation: 3.25}
	b, err := json.Marshal(want)
	require.NoError(t, err)
	require.Contains(t, string(b), `"p50_ns":2,`)
	var got load.Result
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, want, got)
}

// How long does the loop itself take for an operation that does nothing?
func BenchmarkLoop(b *testing.B) {
	for name, batch := range map[string]int{"one": 1, "batch of 100": 100} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			n := uint64(b.N)
			b.ReportAllocs()
			load.Run(ctx, load.Config{Goroutines: 1, Duration: time.Hour, Batch: batch},
				func(_ context.Context, _ int, i uint64) error {
					if i == n {
						cancel()
					}
					return nil
				})
		})
	}
}
