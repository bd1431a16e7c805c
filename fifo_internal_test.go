package throttr

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFifoKeepsOrderAsASliceDoes(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var q fifo[int]
		var model []int
		for i := range 2000 {
			switch growing := i%700 < 400; {
			case len(model) > 0 && (rng.IntN(3) == 0) == growing:
				require.Equal(t, model[0], q.pop())
				model = model[1:]
			case rng.IntN(4) == 0:
				q.unshift(i)
				model = slices.Insert(model, 0, i)
			default:
				q.push(i)
				model = append(model, i)
			}
			require.Equal(t, len(model), q.len())
			if len(model) > 0 {
				k := rng.IntN(len(model))
				require.Equal(t, model[0], q.at(0))
				require.Equal(t, model[k], q.at(k))
			}
		}
	}
}

func TestAFifoLetsGoOfWhatWasPopped(t *testing.T) {
	var q fifo[*int]
	for range 20 {
		q.push(new(int))
	}
	for range 20 {
		q.pop()
	}
	for _, e := range q.ring {
		require.Nil(t, e)
	}
	require.Len(t, q.ring, 32, "it grows by doubling")
}
