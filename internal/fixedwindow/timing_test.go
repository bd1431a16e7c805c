package fixedwindow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/valuesize"
)

func TestTimingOfAlignedWindows(t *testing.T) {
	for _, c := range []struct {
		scale time.Duration
		size  int
		unit  codec.Unit
		ttl   uint64 // 0: there is none
	}{
		{100 * time.Millisecond, 1, 0, 0},
		{time.Second, 1, codec.Seconds, 255},
		{1500 * time.Millisecond, 1, codec.Seconds, 255}, // 3 s
		{1250 * time.Millisecond, 1, 0, 0},
		{time.Minute, 1, codec.Seconds, 255},
		{127 * time.Second, 1, codec.Seconds, 255},
		{127*time.Second + 500*time.Millisecond, 1, 0, 0},
		{128 * time.Second, 1, 0, 0},
		{time.Hour, 1, codec.Minutes, 130},
		{time.Second, 2, codec.Milliseconds, 65535},
		{10 * time.Second, 2, codec.Seconds, 620},
		{time.Minute, 2, codec.Seconds, 720},
		{time.Hour, 4, codec.Milliseconds, 7_800_000},
		{maxTTL/2 + 1, 8, 0, 0},
		{math.MaxInt64, 8, 0, 0},
		{0, 8, 0, 0},
		{-1, 8, 0, 0},
		{math.MinInt64/2 - 1, 8, 0, 0}, // twice that wraps around
		{math.MinInt64, 8, 0, 0},
	} {
		got, ok := timingFor(c.scale, false, valuesize.Max(c.size))
		require.Equal(t, c.ttl > 0, ok, "%v in %d bytes: %+v", c.scale, c.size, got)
		if ok {
			require.Equal(t, timing{scale: c.scale, unit: c.unit, ttl: c.ttl}, got, "%v in %d bytes", c.scale, c.size)
		}
	}
}

func TestTimingLeavesTimeToRemoveRecords(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	found := 0
	for range 10_000 {
		unit := codec.Unit(1 + r.IntN(6)).Duration()
		scale := time.Duration(r.Int64()) / unit >> r.IntN(60) * unit
		for size := 1; size <= 8; size *= 2 {
			uses, sliding := time.Duration(2), r.IntN(2) == 0
			if sliding {
				uses = 3
			}
			tm, ok := timingFor(scale, sliding, valuesize.Max(size))
			if !ok {
				continue
			}
			found++
			what := fmt.Sprintf("seed %d: %v in %d bytes: %+v", seed, scale, size, tm)
			require.LessOrEqual(t, tm.ttl, valuesize.Max(size), what)
			require.LessOrEqual(t, tm.ttl, uint64(maxTTL/tm.unit.Duration()), what)
			lasts := time.Duration(tm.ttl) * tm.unit.Duration()
			require.GreaterOrEqual(t, lasts-uses*scale, minMargin, what)
			require.Zero(t, uses*scale%tm.unit.Duration(), what)
		}
	}
	require.Greater(t, found, 10_000)
}

func TestBucketsAreThoseOfTheAlgorithm(t *testing.T) {
	for _, scale := range []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, maxTTL / 2} {
		tm := timing{scale: scale}
		for _, ns := range []int64{0, 1, -1, 1e18, -1e18, int64(scale), -int64(scale), int64(scale) - 1} {
			at := time.Unix(0, ns)
			b := tm.bucket(at)
			require.Equal(t, limits.AlignedStart(at, scale).Add(scale).UnixNano(), tm.end(b).UnixNano(), "%v at %d ns", scale, ns)
		}
	}
	for ns, want := range map[int64]int64{0: 0, 9: 0, 10: 1, -1: -1, -10: -1, -11: -2} {
		require.Equal(t, want, timing{scale: 10}.bucket(time.Unix(0, ns)), "%d ns", ns)
	}
}
