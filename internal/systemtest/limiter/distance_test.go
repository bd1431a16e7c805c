package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// farScales are the scales for which servers are tried that are far away.
var farScales = []time.Duration{
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour,
}

// A window can be opened if its server responds within half a guard, which is half a scale, but at
// most a second. A hit on a known window takes one round trip, one that opens a window two.
func TestWindowsOnServersFarAway(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		for _, scale := range farScales {
			testkit.Bubble(t, fmt.Sprintf("%v away, scale %v", trip, scale), func(t *testing.T) { testFarAway(t, trip, scale) })
		}
	}
}

func testFarAway(t *testing.T, trip, scale time.Duration) {
	const limit, windows = 2, 4
	srv := testkit.InMemory(t)
	limiter := testkit.Limiter[uint16](t, srv)
	srv.Inject(mockserver.Fault{Delay: trip})
	hit := func(key string) operation {
		op := operation{kind: opHit, key: modelKey{key, scale}, n: 1, limit: limit}
		op.do(t.Context(), limiter, time.Minute)
		return op
	}
	guard := min(scale/2, time.Second)
	for i := range windows {
		hit(fmt.Sprint(i)) // so that there are connections
		first := hit("k")
		if trip >= guard/2 {
			require.ErrorContains(t, first.err, fmt.Sprintf("the server responds after %v, and a window of %v takes a response within %v",
				trip, scale, guard/2))
			require.True(t, first.notSent)
			continue
		}
		require.True(t, first.allowed, first)
		require.Equal(t, 2*trip, first.end.Sub(first.start))
		known := hit("k")
		require.True(t, known.allowed, known)
		require.Equal(t, trip, known.end.Sub(known.start))
		require.False(t, hit("k").allowed)
		if i == 0 {
			replaces(t, limiter, operation{kind: opSet, key: modelKey{"set", scale}, n: 7}, guard+6*trip)
			replaces(t, limiter, operation{kind: opReset, key: modelKey{"reset", scale}}, guard+4*trip)
		}
		time.Sleep(scale)
	}
}

// replaces makes a Set or Reset of an open window, and requires that it takes so long and leaves a count of n.
func replaces(t *testing.T, limiter *throttr.RateLimit, op operation, takes time.Duration) {
	t.Helper()
	testkit.Hits(t, limiter, 1, op.key.key, op.key.scale, 5)
	op.do(t.Context(), limiter, time.Minute)
	require.NoError(t, op.err)
	require.Equal(t, takes, op.end.Sub(op.start), op.kind)
	n, err := limiter.Get(t.Context(), op.key.key, op.key.scale)
	require.NoError(t, err)
	require.Equal(t, op.n, n, op.kind)
}
