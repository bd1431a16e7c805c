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
	"github.com/throttr-go/throttr/mockserver"
)

// A connection is cut at each byte in turn. Whatever a call returns is true of the count on the
// server.
func TestCutConnectionReportsWhetherHitsWereCounted(t *testing.T) {
	for _, d := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
		t.Run(d.String(), func(t *testing.T) {
			for after := 0; ; after++ {
				cut := false
				synctest.Test(t, func(t *testing.T) { cut = testCutCalls(t, mockserver.Cut{Direction: d, After: after, Times: 1}) })
				if !cut || t.Failed() {
					require.Greater(t, after, 70)
					return
				}
			}
		})
	}
}

// testCutCalls makes calls on a connection that is cut. It returns false if the cut came too late
// for any of them.
func testCutCalls(t *testing.T, cut mockserver.Cut) bool {
	ctx, what := t.Context(), fmt.Sprintf("cut after %d bytes", cut.After)
	srv := testkit.InMemory(t)
	other := testkit.Limiter[uint16](t, srv)
	srv.Cut(cut)
	client, err := throttr.Connect[uint16](ctx, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{Servers: []string{srv.Addr()}})))
	if err != nil {
		return true // the probe was cut
	}
	defer client.Close()
	l := throttr.NewRateLimit(client.Backend())
	count := func(key string) uint64 {
		n, err := other.Get(ctx, key, time.Minute)
		require.NoError(t, err, what)
		return n
	}
	failures := 0
	// check makes a call. The count on the server must be want if it succeeds, unchanged if its
	// error says that it was not sent, and either of both, or 0, if it has another error.
	check := func(name, key string, call func(key string) error, want uint64) {
		before := count(key)
		err := call(key)
		after := count(key)
		switch {
		case err == nil:
			require.Equal(t, want, after, "%s, %s", what, name)
		case throttr.SafeToRetry(err):
			failures++
			require.Equal(t, before, after, "%s, %s: %v", what, name, err)
		default:
			failures++
			require.Contains(t, []uint64{0, before, want}, after, "%s, %s: %v", what, name, err)
		}
	}
	hit := func(key string) error { _, err := l.Hit(ctx, key, time.Minute, 10); return err }
	set := func(key string) error { _, err := l.Set(ctx, key, time.Minute, 7); return err }
	reset := func(key string) error { return l.Reset(ctx, key, time.Minute) }
	check("first hit", "k", hit, count("k")+1)
	check("second hit", "k", hit, count("k")+1)
	check("set", "k", set, 7)
	check("hit after set", "k", hit, count("k")+1)
	check("reset", "k", reset, 0)
	check("hit after reset", "k", hit, count("k")+1)
	check("hit of another key", "hit", hit, 1)
	check("set of another key", "set", set, 7)
	require.LessOrEqual(t, failures, 1, what)
	testkit.RequireRemoved(t, srv, 3*time.Minute)
	return failures > 0
}

// Two clients open a window at the same time, and the connection of the second one is cut at each
// byte in turn.
func TestCutWhileTwoClientsOpenAWindow(t *testing.T) {
	for after := 0; ; after++ {
		cut := true
		synctest.Test(t, func(t *testing.T) {
			cut = testCutOpening(t, mockserver.Cut{Direction: mockserver.FromClient, After: after, Times: 1})
		})
		if !cut || t.Failed() {
			return
		}
	}
}

// testCutOpening returns false if the cut came too late for the hit.
func testCutOpening(t *testing.T, c mockserver.Cut) (cut bool) {
	what := fmt.Sprintf("cut after %d bytes", c.After)
	srv := testkit.InMemory(t)
	first := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(40*time.Second)) // in the next bucket
	srv.Cut(c)
	client, err := throttr.Connect[uint16](t.Context(), testkit.Over(srv, testkit.WithoutRetries(throttr.Config{Servers: []string{srv.Addr()}})))
	if err != nil {
		return true // the probe was cut
	}
	defer client.Close()
	second := throttr.NewRateLimit(client.Backend())
	remove := srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	time.Sleep(40 * time.Second)
	var callers sync.WaitGroup
	callers.Go(func() { testkit.Hits(t, first, 1, "k", time.Minute, 10) })
	time.Sleep(100 * time.Microsecond)
	_, err = second.Hit(t.Context(), "k", time.Minute, 10)
	callers.Wait()
	remove()
	sum := uint64(0)
	for _, name := range testkit.Keys(srv) {
		n, _ := srv.Counter(name)
		sum += n
	}
	switch {
	case err == nil:
		require.Equal(t, uint64(2), sum, what)
	case throttr.SafeToRetry(err):
		require.Equal(t, uint64(1), sum, "%s: %v", what, err)
	}
	res, hitErr := first.Hit(t.Context(), "k", time.Minute, 10)
	require.NoError(t, hitErr)
	require.LessOrEqual(t, res.Count, uint64(3), what)
	testkit.RequireRemoved(t, srv, 3*time.Minute)
	return err != nil
}
