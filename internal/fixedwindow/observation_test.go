package fixedwindow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
)

func TestEndOfAWindowNarrowsWithEachObservation(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, c := range []struct {
		name           string
		now, old, want [2]int
	}{
		{"within", [2]int{3, 5}, [2]int{1, 9}, [2]int{3, 5}},
		{"around", [2]int{1, 9}, [2]int{3, 5}, [2]int{3, 5}},
		{"earlier", [2]int{1, 4}, [2]int{3, 5}, [2]int{3, 4}},
		{"later", [2]int{4, 9}, [2]int{3, 5}, [2]int{4, 5}},
		{"a point", [2]int{5, 9}, [2]int{3, 5}, [2]int{5, 5}},
		{"another window", [2]int{6, 9}, [2]int{3, 5}, [2]int{6, 9}},
		{"another window before", [2]int{0, 2}, [2]int{3, 5}, [2]int{0, 2}},
	} {
		w := state{earliestEnd: at(c.now[0]), latestEnd: at(c.now[1])}
		w.narrow(state{earliestEnd: at(c.old[0]), latestEnd: at(c.old[1])})
		require.Equal(t, state{earliestEnd: at(c.want[0]), latestEnd: at(c.want[1])}, w, c.name)
	}
}

func TestWindowIsLiveWhileTheTTLIsAtLeastTheMargin(t *testing.T) {
	tm := timing{scale: 10 * time.Second, unit: 4, span: 10, margin: 30}
	require.True(t, observation{found: true, left: 39}.live(tm))
	require.True(t, observation{found: true, left: 30}.live(tm))
	require.False(t, observation{found: true, left: 29}.live(tm))
	require.False(t, observation{found: true}.live(tm))
	require.False(t, observation{left: 39}.live(tm))
	lo, hi := observation{left: 30, from: time.Unix(100, 0), to: time.Unix(101, 0)}.end(tm)
	require.Equal(t, [2]time.Time{time.Unix(100, 0), time.Unix(102, 0)}, [2]time.Time{lo, hi})
}

func TestEndOfAResultIsWithinAScale(t *testing.T) {
	tm := timing{scale: 10 * time.Second, unit: 4, span: 10, margin: 30}
	now := time.Unix(100, 0)
	for end, left := range map[time.Duration]time.Duration{
		-time.Second:     1,
		0:                1,
		time.Second:      time.Second,
		10 * time.Second: 10 * time.Second,
		11 * time.Second: 10 * time.Second,
	} {
		w := state{earliestEnd: now, latestEnd: now.Add(end)}.result(tm, 7, now)
		require.Equal(t, coalesce.Result{Count: 7, ExpiresAt: now.Add(left), Left: left}, w, "%v", end)
	}
}
