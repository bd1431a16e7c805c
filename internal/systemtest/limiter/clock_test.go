package limiter_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

func TestClientStaysInItsWindowWhenItsClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-24 * time.Hour, -59 * time.Second, -time.Second, time.Second, 50 * time.Second} {
		for _, opens := range []bool{true, false} { // whether this client opens the window, or another
			t.Run(fmt.Sprintf("%v/opens=%v", jump, opens), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testClockJump(t, jump, opens) })
			})
		}
	}
}

func testClockJump(t *testing.T, jump time.Duration, opens bool) {
	srv := testkit.InMemory(t)
	var mu sync.Mutex
	var shift time.Duration
	set := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		shift = d
	}
	l := testkit.Limiter[uint16](t, srv, throttr.WithClock(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Round(0).Add(shift)
	}))
	other := testkit.Limiter[uint16](t, srv)
	if opens {
		require.Equal(t, 3, testkit.Hits(t, l, 3, "k", time.Minute, 10))
	} else {
		require.Equal(t, 2, testkit.Hits(t, other, 2, "k", time.Minute, 10))
		require.Equal(t, 1, testkit.Hits(t, l, 1, "k", time.Minute, 10))
	}
	time.Sleep(5 * time.Second)
	set(jump)
	require.Equal(t, 7, testkit.Hits(t, l, 12, "k", time.Minute, 10))
	res, err := l.Hit(t.Context(), "k", time.Minute, 10)
	require.NoError(t, err)
	require.Positive(t, res.RetryAfter)
	require.LessOrEqual(t, res.RetryAfter, time.Minute)
	require.Zero(t, testkit.Hits(t, other, 1, "k", time.Minute, 10))
	set(0)
	require.Zero(t, testkit.Hits(t, l, 1, "k", time.Minute, 10))
	set(jump)
	time.Sleep(55 * time.Second) // the window is over
	time.Sleep(2 * time.Second)  // longer than the denial memory
	require.Equal(t, 10, testkit.Hits(t, l, 12, "k", time.Minute, 10))
}
