package api_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
)

func TestTheSmallestSizeOfAValue(t *testing.T) {
	for n, want := range map[uint64]int{
		0: 1, math.MaxUint8: 1, math.MaxUint8 + 1: 2, math.MaxUint16: 2, math.MaxUint16 + 1: 4, math.MaxUint32: 4, math.MaxUint32 + 1: 8, math.MaxUint64: 8,
	} {
		require.Equal(t, want, api.SmallestSize(func(largest uint64) bool { return n <= largest }), n)
	}
	require.Zero(t, api.SmallestSize(func(uint64) bool { return false }))
}
