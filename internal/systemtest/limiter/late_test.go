package limiter_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// What opens a window names its bucket, and can then wait for longer than a scale before it
// is executed: here behind another request's slow answer. Others look for the window in
// later buckets, do not find it, and open another.
func TestAWindowThatOpensLateIsFoundByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = 200 * time.Millisecond, 5
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Op: codec.OpGet, Delay: 700 * time.Millisecond})
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{MaxConns: 1})))
		late, other := throttr.NewRateLimit(client.Backend()), testkit.Limiter[uint16](t, srv)
		var all sync.WaitGroup
		all.Go(func() {
			time.Sleep(500 * time.Microsecond) // while the look is under way
			client.Get(t.Context(), "slow")
		})
		allowed := testkit.Hits(t, late, limit, "k", scale, limit)
		n, err := other.Get(t.Context(), "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, limit, n, "another client does not find the window")
		allowed += testkit.Hits(t, other, limit, "k", scale, limit)
		require.Equal(t, limit, allowed)
		all.Wait()
	})
}

// The same with a Set whose look is repeated after a stall: the bucket is older still.
func TestASetThatTakesLongIsFoundByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 200 * time.Millisecond
		srv := testkit.InMemory(t)
		slow := throttr.NewRateLimit(testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: 4 * scale})).Backend())
		srv.HalfOpen()
		other := testkit.Limiter[uint16](t, srv)
		_, err := slow.Set(t.Context(), "k", scale, 7)
		require.NoError(t, err)
		n, err := other.Get(t.Context(), "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
	})
}

// After a Reset the next window can have the name of the last. Two clients open it at once,
// in different buckets; a third, which still knows the old name, counts in the record that is
// about to be removed, and its hit is lost.
func TestAHitOnAWindowThatWasResetIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = time.Second, 3
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		x, y, z := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(100*time.Millisecond)), testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		start := time.Now().Truncate(scale).Add(scale)
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		at(900 * time.Millisecond)
		testkit.Hits(t, z, 1, "k", scale, limit)
		require.NoError(t, y.Reset(t.Context(), "k", scale))
		t0 := 950 * time.Millisecond
		allowed := make([]int, 3)
		var all sync.WaitGroup
		for i, c := range []struct {
			l  *throttr.RateLimit
			at time.Duration
		}{{x, t0}, {y, t0 + 300*time.Microsecond}, {z, t0 + 1800*time.Microsecond}} {
			all.Go(func() {
				at(c.at)
				allowed[i] = testkit.Hits(t, c.l, 1, "k", scale, limit)
			})
		}
		all.Wait()
		require.LessOrEqual(t, allowed[0]+allowed[1]+allowed[2]+testkit.Hits(t, x, 5, "k", scale, limit), limit)
	})
}

// A window whose scale is shorter than the time between two readings of the clock can't be opened
// in time.
func TestAWindowThatIsOverBeforeItOpensNamesItsScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		now, step := time.Now(), 2*time.Millisecond
		var mu sync.Mutex
		l := testkit.Limiter[uint16](t, srv, throttr.WithClock(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(step)
			return now
		}))
		before := srv.Requests(codec.OpInsert) // of the probe
		for what, do := range map[string]func() error{
			"hit": func() error { _, err := l.Hit(t.Context(), "k", time.Millisecond, 100); return err },
			"set": func() error { _, err := l.Set(t.Context(), "k", time.Millisecond, 7); return err },
		} {
			err := do()
			require.ErrorContains(t, err, "a window of 1ms was over", what)
			require.True(t, throttr.SafeToRetry(err), what)
			require.False(t, throttr.Timeout(err), what)
		}
		require.Equal(t, before, srv.Requests(codec.OpInsert))
		mu.Lock()
		step = time.Microsecond
		mu.Unlock()
		require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 2))
	})
}

// After a Reset, who still knows the old name finds a record there that is about to be removed,
// as there is an older one. A Get is not told its count.
func TestAGetAfterAResetReadsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = time.Second
		srv := testkit.InMemory(t)
		y, z := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		time.Sleep(time.Until(time.Now().Truncate(scale).Add(scale + 100*time.Millisecond)))
		testkit.Hits(t, z, 1, "k", scale, 9)
		names := testkit.Keys(srv)
		require.Len(t, names, 1)
		require.NoError(t, y.Reset(t.Context(), "k", scale))
		early := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(-200*time.Millisecond)) // in the bucket before
		testkit.Hits(t, early, 5, "k", scale, 9)
		time.Sleep(50 * time.Millisecond)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		ok, err := client.Insert(t.Context(), names[0], 1, codec.TTL[uint16]{Amount: 31_000, Unit: codec.Milliseconds})
		require.NoError(t, err)
		require.True(t, ok)
		for _, l := range []*throttr.RateLimit{y, z} {
			n, err := l.Get(t.Context(), "k", scale)
			require.NoError(t, err)
			require.EqualValues(t, 5, n)
		}
	})
}
