package load

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysArePickedEvenly(t *testing.T) {
	t.Parallel()
	keys := KeySet{N: 10}.Keys()
	require.Equal(t, 10, keys.Len())
	require.Equal(t, "000000000009", keys.At(9))
	picked := map[string]int{}
	for i := range uint64(10_000) {
		picked[keys.Pick(3, i)]++
	}
	require.Len(t, picked, 10)
	for _, n := range picked {
		require.InDelta(t, 1000, n, 150)
	}
	require.Zero(t, pick(1, 3, 5))
}

func TestForEachCallsWithEveryNumber(t *testing.T) {
	t.Parallel()
	for _, goroutines := range []int{1, 3, 20} {
		var calls [10]atomic.Int32
		require.NoError(t, ForEach(10, goroutines, func(i int) error {
			calls[i].Add(1)
			return nil
		}))
		for i := range calls {
			require.EqualValues(t, 1, calls[i].Load())
		}
	}
}

func TestForEachEndsAtError(t *testing.T) {
	t.Parallel()
	failure := errors.New("5")
	calls := 0
	require.ErrorIs(t, ForEach(10, 1, func(i int) error {
		calls++
		if i == 5 {
			return failure
		}
		return nil
	}), failure)
	require.Equal(t, 6, calls)
}
