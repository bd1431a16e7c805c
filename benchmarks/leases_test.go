package main

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/tools/load"
)

func TestSharersAreMeasured(t *testing.T) {
	s := serve(t)
	r := newResults(plan{duration: 50 * time.Millisecond, shared: 2500 * time.Millisecond, sharedScale: time.Second})
	measure := func(k sharing, c sharer) sharedFigures {
		require.NoError(t, r.shareKey(t.Context(), s, k, c))
		m := c.measurement(k)
		require.Len(t, r.shared[m], 1, m)
		require.Positive(t, r.loads[m][0].PerSecond, m)
		require.Positive(t, r.loads[m][0].P50, m)
		return r.shared[m][0]
	}
	require.True(t, math.IsNaN(measure(unlimited, memoryInOne).requests))
	require.Positive(t, measure(unlimited, leasesOnThrottr).requests)
	require.Positive(t, measure(unlimited, onThrottr).requests)
	for _, k := range []sharing{saturating, steady} {
		f := measure(k, leasesOnRedis)
		require.Zero(t, f.over)
		require.Positive(t, f.used)
		require.Positive(t, f.windows)
	}
}

func TestProcessThatFailsIsAnError(t *testing.T) {
	p, err := startSharedProcess(t.Context(), assignment{Sharer: "another"})
	require.NoError(t, err)
	_, err = p.end()
	require.ErrorContains(t, err, `there is no "another"`)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &servers{shared: &process{}, redis: &process{}}
	require.ErrorIs(t, newResults(plan{}).shareKey(ctx, s, unlimited, memoryInOne), context.Canceled)
}

// TestAllowedHitsAreAddedUpByWindow has three windows of a second, whose ends the processes know to some
// milliseconds.
func TestAllowedHitsAreAddedUpByWindow(t *testing.T) {
	start := time.UnixMilli(100_000)
	var all sharedReport
	all.merge(sharedReport{Hits: 10, Allowed: 4, CPU: time.Second, Windows: map[int64]uint64{100_500: 50, 101_505: 60, 102_510: 100}})
	all.merge(sharedReport{Hits: 10, Allowed: 4, CPU: time.Second, Windows: map[int64]uint64{100_503: 53, 101_500: 30, 102_509: 5}})
	require.Equal(t, []sharedWindow{
		{time.UnixMilli(100_500), 103}, {time.UnixMilli(101_500), 90}, {time.UnixMilli(102_509), 105},
	}, all.windows(time.Second))
	a := assignment{Limit: 100, Scale: time.Second, Start: start, End: start.Add(2 * time.Second)}
	res, f := all.results(a, serverUsage{time.Second, 40}, leasesOnThrottr)
	require.Equal(t, load.Result{Operations: 20, Elapsed: 2 * time.Second, PerSecond: 10, CPUPerOperation: 1e8}, res)
	require.Equal(t, sharedFigures{requests: 2000, allowed: 5000, used: 0.9, over: 5, windows: 3, hits: 20}, f, "one window is within the measurement")
	_, f = all.results(a, serverUsage{}, memoryInOne)
	require.True(t, math.IsNaN(f.requests) && math.IsNaN(f.allowed))
}
