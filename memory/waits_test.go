package memory_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// A call that waits for its turn does not count in the past: windows start a scale apart, whatever the order in which calls
// on one key get their turn.
func TestACallThatWaitsDoesNotCountInThePast(t *testing.T) {
	const scale = 4 * time.Millisecond
	var readings atomic.Int64
	start := time.Unix(1_000_000_000, 0)
	b := memory.New(memory.WithClock(func() time.Time {
		return start.Add(time.Duration(readings.Add(1)) * scale / 4)
	}))
	limit := window.Limit{Max: 2, Scale: scale, Algorithm: window.FixedWindow}
	var mu sync.Mutex // guards granted
	granted := map[int64]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				w, err := b.Take(t.Context(), "k", limit, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if !w.Refused {
					mu.Lock()
					granted[w.ExpiresAt.UnixNano()]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	var ends []int64
	for end, n := range granted {
		require.LessOrEqual(t, n, 2)
		ends = append(ends, end)
	}
	slices.Sort(ends)
	require.Greater(t, len(ends), 100)
	for i := 1; i < len(ends); i++ {
		require.GreaterOrEqual(t, time.Duration(ends[i]-ends[i-1]), scale)
	}
}
