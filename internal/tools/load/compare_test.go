package load_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// contender records when it is measured.
type contender struct {
	name  string
	order *[]string
	err   error
}

func (c contender) Measure(_ context.Context, cfg load.Config) (load.Result, error) {
	*c.order = append(*c.order, c.name)
	return load.Result{Operations: uint64(len(*c.order)), Elapsed: cfg.Duration}, c.err
}

func TestContendersAreMeasuredInTurns(t *testing.T) {
	var order []string
	results, err := load.Compare(t.Context(), 3*time.Second, 3, []load.Contender{contender{"a", &order, nil}, contender{"b", &order, nil}})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "b", "a", "a", "b"}, order)
	for i, numbers := range [][]uint64{{1, 4, 5}, {2, 3, 6}} {
		require.Len(t, results[i], 3)
		for turn, res := range results[i] {
			require.Equal(t, numbers[turn], res.Operations)
			require.Equal(t, time.Second, res.Elapsed)
		}
	}
}

func TestComparisonEndsAtError(t *testing.T) {
	var order []string
	failure := errors.New("broken")
	_, err := load.Compare(t.Context(), time.Second, 2, []load.Contender{contender{"a", &order, failure}, contender{"b", &order, nil}})
	require.ErrorIs(t, err, failure)
	require.Equal(t, []string{"a"}, order)
}
