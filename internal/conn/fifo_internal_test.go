package conn

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueueKeepsTheOrderOfASlice(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var q fifo[int]
		var model []int
		for i := range 2000 {
			switch growing := i%700 < 400; {
			case len(model) > 0 && (rng.IntN(3) == 0) == growing:
				require.Equal(t, model[0], q.Pop())
				model = model[1:]
			default:
				q.Push(i)
				model = append(model, i)
			}
			require.Equal(t, len(model), q.Len())
			if len(model) > 0 {
				k := rng.IntN(len(model))
				require.Equal(t, model[0], q.At(0))
				require.Equal(t, model[k], q.At(k))
			}
		}
	}
}

func TestQueueDoesNotKeepPoppedElements(t *testing.T) {
	var q fifo[*int]
	for range 20 {
		q.Push(new(int))
	}
	for range 20 {
		q.Pop()
	}
	for _, e := range q.ring {
		require.Nil(t, e)
	}
	require.Equal(t, 32, q.Cap(), "the queue grows by doubling")
}

func TestPopOfAnEmptyQueuePanics(t *testing.T) {
	var q fifo[int]
	require.Panics(t, func() { q.Pop() })
	q.Push(1)
	q.Pop()
	require.Panics(t, func() { q.Pop() })
}
