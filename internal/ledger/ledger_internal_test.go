package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Counts whose ids have the same hash are told apart, and each is removed when it is idle.
func TestCountsOfOneHash(t *testing.T) {
	l := New(shards*3, func() time.Duration { return 1 })
	s := &l.shards[0]
	var all []*count
	for _, key := range []string{"a", "b", "c"} {
		c, err := l.count(s, 64, id{key, ""})
		require.NoError(t, err)
		all = append(all, c)
	}
	for i, key := range []string{"a", "b", "c"} {
		require.Same(t, all[i], s.find(64, id{key, ""}))
	}
	require.Nil(t, s.find(64, id{"a", "other"}))
	all[0].sum, all[2].sum = 1, 1
	s.clean(64, 1)
	require.Nil(t, s.find(64, id{"b", ""}))
	require.Same(t, all[0], s.find(64, id{"a", ""}))
	require.Same(t, all[2], s.find(64, id{"c", ""}))
	all[0].sum, all[2].sum = 0, 0
	s.clean(64, 1)
	require.Empty(t, s.counts)
}
