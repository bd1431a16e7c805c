package main

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoadSurvivesFaultsWithoutLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	l, err := newLoad(1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx) })
	time.Sleep(time.Second)
	worked := func() bool { return l.done.Load() > 0 && l.faults.Load() > 0 }
	for deadline := time.Now().Add(time.Minute); !worked() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	require.True(t, worked())
	cancel()
	running.Wait()
	l.close()
	require.NoError(t, waitForGoroutines(before))
}

func TestGrowthFailsTheSoak(t *testing.T) {
	series := func(heap, goroutines func(i int) int) []sample {
		var all []sample
		for i := range 30 {
			all = append(all, sample{heap: uint64(heap(i)), goroutines: uint64(goroutines(i))})
		}
		return all
	}
	steady := func(int) int { return 1000 }
	saw := func(i int) int { return 20<<20 + i%5*(4<<20) }
	filling := func(i int) int { return min(i, 10) * 10 << 20 }
	leak := func(i int) int { return 50<<20 + i*(3<<20) }
	require.NoError(t, flat(series(saw, steady)))
	require.NoError(t, flat(series(filling, steady)))
	require.ErrorContains(t, flat(series(leak, steady)), "memory")
	require.ErrorContains(t, flat(series(saw, func(i int) int { return 100 + 10*i })), "goroutines")
	require.Error(t, flat(nil))
}
