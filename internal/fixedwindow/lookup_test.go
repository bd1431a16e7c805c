package fixedwindow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOldestRecordIsTheWindow(t *testing.T) {
	fine := timing{scale: time.Second, unit: 1, span: 1e9, margin: 30e9}
	coarse := timing{scale: time.Second, unit: 4, span: 1, margin: 30}
	from := time.Unix(100, 0)
	observed := func(took time.Duration, lefts ...uint64) (live []observation) {
		for i, left := range lefts {
			live = append(live, observation{bucket: int64(i), found: true, left: left, from: from, to: from.Add(took)})
		}
		return live
	}
	s, tie := oldest(observed(1000, 30e9+5000, 30e9, 30e9+7000), fine)
	require.Equal(t, int64(1), s.bucket)
	require.False(t, tie)
	_, tie = oldest(observed(5000, 30e9+5000, 30e9, 30e9+7000), fine)
	require.True(t, tie, "the lookup took as long as they are apart")
	_, tie = oldest(observed(0, 31, 30), coarse)
	require.True(t, tie, "a unit may have ended between the two")
	s, tie = oldest(observed(0, 30, 40, 50), coarse)
	require.Equal(t, int64(0), s.bucket)
	require.False(t, tie)
	_, tie = oldest(observed(0, 30), coarse)
	require.False(t, tie)

	live := observed(0, 31, 30, 31, 40)
	live[0].count, live[1].count, live[2].count, live[3].count = 3, 2, 9, 50
	require.Equal(t, int64(2), busiest(live, 30).bucket)
}
