package valuesize_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/valuesize"
)

func TestTheSmallestSizeOfAValue(t *testing.T) {
	for n, want := range map[uint64]int{
		0: 1, math.MaxUint8: 1, math.MaxUint8 + 1: 2, math.MaxUint16: 2, math.MaxUint16 + 1: 4, math.MaxUint32: 4, math.MaxUint32 + 1: 8, math.MaxUint64: 8,
	} {
		require.Equal(t, want, valuesize.Smallest(func(largest uint64) bool { return n <= largest }), n)
	}
	require.Zero(t, valuesize.Smallest(func(uint64) bool { return false }))
}
