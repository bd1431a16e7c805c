package fixedwindow

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

func TestRangeErrorNeedsTheSmallestSufficientSize(t *testing.T) {
	for _, scale := range []time.Duration{255, 256, 65535, time.Millisecond + 1, 1500 * time.Millisecond, 255 * time.Second, 290 * year} {
		for size := 1; size <= 8; size *= 2 {
			if _, ok := timingOf(scale, window.MaxValue(size)); ok {
				continue
			}
			var re *window.RangeError
			require.ErrorAs(t, scaleError(window.PerKey, scale, size), &re)
			require.Greater(t, re.Needs, size)
			_, ok := timingOf(scale, window.MaxValue(re.Needs))
			require.True(t, ok, "%v in %d bytes", scale, re.Needs)
			_, ok = timingOf(scale, window.MaxValue(re.Needs/2))
			require.False(t, ok, "%v: %d bytes would do", scale, re.Needs/2)
		}
	}
}

func TestRangeErrorsNameFieldBoundAndSize(t *testing.T) {
	for want, err := range map[string]error{
		"throttr: scale 1.5s is out of range: 1-byte values hold whole numbers of a unit (1 ns to 1 h) up to 254; " +
			"2-byte values (uint16) would do": scaleError(window.PerKey, 1500*time.Millisecond, 1),
		"throttr: scale 2m7.5s is out of range: 1-byte values hold whole numbers of half a unit (1 ns to 1 h) up to 254; " +
			"2-byte values (uint16) would do": scaleError(window.Aligned, 127*time.Second+500*time.Millisecond, 1),
		"throttr: scale 1281024h0m0s is out of range: 8-byte values hold whole numbers of half a unit (1 ns to 1 h) up to 18446744073709551614; " +
			"no value size would do": scaleError(window.Aligned, 1281024*time.Hour, 8),
		"throttr: scale 2562047h47m16.854775807s is out of range: 8-byte values hold whole numbers of a unit (1 ns to 1 h) up to 18446744073709551614; " +
			"no value size would do": scaleError(window.PerKey, math.MaxInt64, 8),
		"throttr: limit 192 is out of range: 1-byte values hold at most 191, as 64 are kept free for clients that add at once; " +
			"2-byte values (uint16) would do": checkCount("limit", 192, 1),
		"throttr: count 18446744073709551615 is out of range: 4-byte values hold at most 4294967231, as 64 are kept free for clients that add at once; " +
			"no value size would do": checkCount("count", math.MaxUint64, 4),
		"throttr: increment 93 is out of range: 1-byte values hold at most 92 with a limit of 100; " +
			"2-byte values (uint16) would do": checkIncrement(100, 93, 1),
		"throttr: increment 18446744073709551552 is out of range: 8-byte values hold at most 18446744073709551551 with a limit of 1; " +
			"no value size would do": checkIncrement(1, math.MaxUint64-63, 8),
		"throttr: increment 100 is out of range: 1-byte values hold counts up to 191, and it is 150 already; " +
			"2-byte values (uint16) would do": overflowError(coalesce.Hit{Limit: 191, Increment: 100, Must: true}, 150, 1),
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, window.ErrRange)
	}
	for _, size := range []int{1, 2, 4, 8} {
		most := window.MaxValue(size) - headroom
		require.NoError(t, checkCount("limit", most, size))
		require.Error(t, checkCount("limit", most+1, size))
		require.NoError(t, checkIncrement(most, 1, size), "a hit at the largest limit")
		require.Error(t, checkIncrement(most, 2, size))
		require.NoError(t, checkIncrement(0, most+1, size))
		require.Error(t, checkIncrement(0, most+2, size))
	}
}

func TestSixtyFourSharesDoNotWrap(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		largest := window.MaxValue(size)
		for _, limit := range []uint64{0, 1, 50, 127, 128, 190, largest / 2, largest - headroom - 1, largest - headroom} {
			s := share(largest, limit)
			require.GreaterOrEqual(t, s, uint64(1))
			require.LessOrEqual(t, s, (largest-limit)/headroom, "size %d, limit %d", size, limit)
		}
	}
}

func TestBatchAddsNoMoreThanAShare(t *testing.T) {
	const maxValue = math.MaxUint64
	share := share(maxValue, 0)
	for _, c := range []struct {
		name  string
		batch coalesce.Batch
		next  uint64
		fits  bool
	}{
		{"a first hit of any size", coalesce.Batch{}, maxValue - headroom, true},
		{"up to the share", coalesce.Batch{Hits: 1, Sum: share - 1}, 1, true},
		{"beyond the share", coalesce.Batch{Hits: 1, Sum: share}, 1, false},
		{"nothing after more than a share", coalesce.Batch{Hits: 1, Sum: share + 1}, 0, false},
		{"a sum that wraps", coalesce.Batch{Hits: 1, Sum: 1 << 63}, 1 << 63, false},
		{"a sum that wraps to a little", coalesce.Batch{Hits: 1, Sum: 1 << 63}, 1<<63 + 1, false},
	} {
		require.Equal(t, c.fits, fits(maxValue, c.batch, coalesce.Hit{Increment: c.next}), c.name)
	}
	b := coalesce.Batch{Hits: 1, Sum: 1, Limit: 10}
	require.False(t, fits(255, b, coalesce.Hit{Increment: 1, Limit: 191}), "the highest limit decides")
}
