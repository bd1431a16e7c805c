package window_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

func ExampleCheckScale() {
	fmt.Println(window.CheckScale(60 * time.Second))
	fmt.Println(window.CheckScale(60))
	// Output:
	// <nil>
	// throttr: invalid scale: 60ns is less than 1ms; did you forget the unit?
}

func TestScalesUnderOneMillisecondAreRefused(t *testing.T) {
	for _, scale := range []time.Duration{math.MinInt64, -time.Second, -1, 0, 1, 60, time.Microsecond, window.MinScale - 1} {
		err := window.CheckScale(scale)
		require.ErrorIs(t, err, window.ErrScale, "%v", scale)
		require.ErrorContains(t, err, "did you forget the unit?")
		require.ErrorContains(t, err, scale.String())
	}
	for _, scale := range []time.Duration{window.MinScale, window.MinScale + 1, time.Hour, math.MaxInt64} {
		require.NoError(t, window.CheckScale(scale), "%v", scale)
	}
}

func TestRangeErrorMatchesErrRangeAndNamesTheSizeThatWouldDo(t *testing.T) {
	err := &window.RangeError{Field: "limit", Value: "300", Bound: "at most 191", Size: 1, Needs: 2}
	require.ErrorIs(t, fmt.Errorf("wrapped: %w", err), window.ErrRange)
	require.EqualError(t, err, "throttr: limit 300 is out of range: 1-byte values hold at most 191; 2-byte values (uint16) would do")
	err.Needs = 0
	require.EqualError(t, err, "throttr: limit 300 is out of range: 1-byte values hold at most 191; no value size would do")
}

func TestErrorsOfBackendsAreDistinct(t *testing.T) {
	all := []error{window.ErrScale, window.ErrRange, window.ErrClosed}
	for i, a := range all {
		for j, b := range all {
			require.Equal(t, i == j, errors.Is(a, b), "%v, %v", a, b)
		}
	}
}

func TestSmallestSizeIsTheFirstWhoseValuesFit(t *testing.T) {
	require.Equal(t, uint64(math.MaxUint8), window.MaxValue(1))
	require.Equal(t, uint64(math.MaxUint16), window.MaxValue(2))
	require.Equal(t, uint64(math.MaxUint32), window.MaxValue(4))
	require.Equal(t, uint64(math.MaxUint64), window.MaxValue(8))
	for n, size := range map[uint64]int{
		0: 1, math.MaxUint8: 1, math.MaxUint8 + 1: 2, math.MaxUint16: 2, math.MaxUint16 + 1: 4,
		math.MaxUint32: 4, math.MaxUint32 + 1: 8, math.MaxUint64: 8,
	} {
		require.Equal(t, size, window.SmallestSize(func(maxValue uint64) bool { return n <= maxValue }), "%d", n)
	}
	require.Zero(t, window.SmallestSize(func(uint64) bool { return false }))
}
