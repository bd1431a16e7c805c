package load_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/tools/load"
)

func TestHistogramsAreMergedAfterJSON(t *testing.T) {
	t.Parallel()
	var first, second, read load.Histogram
	require.Zero(t, first.Quantile(0.5))
	for i := range 1000 {
		first.Add(time.Duration(i)*time.Microsecond, 1)
		second.Add(time.Duration(1000+i)*time.Microsecond, 1)
	}
	second.Add(2*time.Hour, 1)
	text, err := json.Marshal(&second)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &read))
	first.Merge(&read)
	require.EqualValues(t, 2001, first.Count())
	for q, want := range map[float64]time.Duration{0.1: 200 * time.Microsecond, 0.5: time.Millisecond, 0.99: 1980 * time.Microsecond, 1: time.Hour} {
		require.InEpsilon(t, want, first.Quantile(q), 0.01)
	}
	require.Error(t, read.UnmarshalJSON([]byte("[]")))
}
