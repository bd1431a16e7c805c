package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// A shadow limit counts as the same limit without Shadow, reports what that would have denied, and allows.
func TestAShadowLimitCountsAndDeniesNothing(t *testing.T) {
	for name, call := range withPeek() {
		for _, algorithm := range []throttr.Algorithm{throttr.FixedWindow, throttr.TokenBucket} {
			for _, observed := range []bool{false, true} {
				testkit.Bubble(t, fmt.Sprint(name, "/", algorithm, "/", observed), func(t *testing.T) { testShadow(t, name, call, algorithm, observed) })
			}
		}
	}
}

func testShadow(t *testing.T, name string, call decision, algorithm throttr.Algorithm, observed bool) {
	var seen recorder
	var opts []throttr.Option
	if observed {
		opts = append(opts, throttr.WithObserver(seen.observe))
	}
	shadowed := throttr.NewRateLimit(inProcess(t, memory.WithClock(time.Now)), opts...)
	enforced := throttr.NewRateLimit(inProcess(t, memory.WithClock(time.Now)))
	limit := throttr.Limit{Name: "l", Max: 10, Scale: time.Minute, Algorithm: algorithm}
	shadow := limit
	shadow.Shadow = true
	require.NoError(t, shadowed.Check(shadow))
	begun := time.Now()
	for i := range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a wait that would take longer is a denial
		res := decided(t)(call(ctx, shadowed, shadow, 3))
		require.True(t, res.Allowed)
		require.Zero(t, res.RetryAfter)
		if observed && name != "peek" {
			e := seen.last(t)
			require.Equal(t, shadow, e.Limit)
			require.Equal(t, map[bool]throttr.EventKind{true: throttr.EventAllowed, false: throttr.EventWouldDeny}[i < 3], e.Kind)
			require.Equal(t, i < 3, e.Result.Allowed)
			require.Equal(t, i >= 3, e.Result.RetryAfter > 0)
		}
		want, err := call(ctx, enforced, limit, 3)
		if err == nil {
			require.Equal(t, want.Count, res.Count)
		}
		cancel()
	}
	require.Zero(t, time.Since(begun), "nothing waits")
	for _, l := range []throttr.Limit{limit, shadow} { // one count
		a := decided(t)(shadowed.Peek(t.Context(), "k", l, 0))
		b := decided(t)(enforced.Peek(t.Context(), "k", limit, 0))
		require.Equal(t, b.Count, a.Count)
		require.Equal(t, b.Remaining, a.Remaining)
	}
	require.NoError(t, shadowed.Forget(t.Context(), "k", shadow))
	res := decided(t)(shadowed.Peek(t.Context(), "k", limit, 0))
	require.Zero(t, res.Count)
}

// Neither an outage nor a limit that the backend can't keep is a reason to deny.
func TestAShadowLimitAllowsWhateverTheBackendReturns(t *testing.T) {
	var seen recorder
	for _, failure := range []error{errors.New("down"), throttr.ErrUnsupported, throttr.ErrClosed, throttr.ErrRange} {
		b := failing(t, failure)
		for _, policy := range []throttr.Policy{throttr.ReturnError, throttr.DenyHits} {
			limiter := throttr.NewRateLimit(b, throttr.WithPolicy(policy), throttr.WithObserver(seen.observe))
			unlimited := throttr.Limit{Max: throttr.Unlimited, Scale: time.Minute}
			shadow := throttr.Limit{Name: "l", Max: 10, Scale: time.Minute, Shadow: true}
			_, results := allDecided(t)(limiter.TakeAll(t.Context(), unlimited.For("k", 1), shadow.For("k", 1)))
			require.EqualValues(t, 10, results[1].Limit)
			for name, call := range withPeek() {
				seen.events = nil
				res, err := call(t.Context(), limiter, shadow, 3)
				require.NoError(t, err, "%s: %v", name, failure)
				require.True(t, res.Allowed && res.Degraded, "%s: %v", name, failure)
				if name != "peek" {
					require.Len(t, seen.events, 1)
					require.ErrorIs(t, seen.events[0].Err, failure)
				}
			}
		}
	}
	b, _ := newMemory(t)
	_, err := throttr.NewRateLimit(b).Take(t.Context(), "k", throttr.Limit{Max: 1, Scale: 60, Shadow: true}, 1)
	require.ErrorIs(t, err, throttr.ErrScale, "what is invalid is a mistake")
}

func TestShadowLimitsBesideOthers(t *testing.T) {
	var seen recorder
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		ctx := t.Context()
		old := throttr.Limit{Name: "old", Max: 10, Scale: time.Minute}
		strict := throttr.Limit{Name: "new", Max: 5, Scale: time.Minute, Shadow: true}
		tiny := throttr.Limit{Name: "tiny", Max: 1, Scale: time.Minute, Shadow: true}
		count := func(l throttr.Limit) uint64 {
			res := decided(t)(limiter.Peek(ctx, "k", l, 0))
			return res.Count
		}
		kinds := func() (kinds []string) {
			for _, e := range seen.events {
				kinds = append(kinds, e.Limit.Name+" "+e.Kind.String())
			}
			seen.events = nil
			return kinds
		}
		takes := []throttr.Take{strict.For("k", 4), old.For("k", 4), tiny.For("k", 2)}
		ok, results := allDecided(t)(limiter.TakeAll(ctx, takes...))
		require.True(t, ok)
		require.True(t, results[0].Allowed && results[1].Allowed && results[2].Allowed)
		require.EqualValues(t, 1, results[0].Remaining)
		require.Equal(t, []string{"old allowed", "new allowed", "tiny would deny"}, kinds())

		rv := reserve(t, limiter, takes...)
		require.Equal(t, []string{"old allowed", "new would deny", "tiny would deny"}, kinds())
		require.EqualValues(t, 4, count(strict), "what would be denied is not counted")
		ok, results = allDecided(t)(limiter.TakeAll(ctx, takes...))
		require.False(t, ok)
		require.True(t, results[0].Allowed)
		require.False(t, results[1].Allowed)
		require.Equal(t, []string{"old denied"}, kinds(), "what others deny is not counted")
		require.NoError(t, rv.Commit(ctx, 1, 1, 1))
		require.Equal(t, []string{"new settled", "old settled", "tiny settled"}, kinds())
		require.EqualValues(t, 5, count(old))
		require.EqualValues(t, 4, count(strict), "nothing of it is given back")

		rv, err := limiter.WaitAll(ctx, old.For("k", 5), strict.For("k", 1))
		require.NoError(t, err)
		require.EqualValues(t, 5, count(strict))
		require.NoError(t, rv.Cancel(ctx))
		require.EqualValues(t, 4, count(strict))
		require.Equal(t, "wait", seen.events[3].Call, "of what is settled")
		seen.events = nil
		all := throttr.Limit{Name: "all", Max: throttr.Unlimited, Scale: time.Minute, Shadow: true} // no store is asked
		require.NoError(t, reserve(t, limiter, all.For("k", 9), strict.For("k", 1)).Commit(ctx, 5, 3))
		require.Equal(t, []string{"all allowed", "new allowed", "all settled", "new settled"}, kinds())
		require.EqualValues(t, 7, count(strict))

		begun := time.Now()
		_, err = limiter.WaitAll(ctx, old.For("k", 6), tiny.For("k", 1))
		require.NoError(t, err)
		require.Greater(t, time.Since(begun), 50*time.Second, "the others are waited for")
		require.EqualValues(t, 1, count(tiny))
	}, throttr.WithObserver(seen.observe))
}

// A limit is tried out before it is enforced.
func ExampleLimit_shadow() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
		if e.Kind == throttr.EventWouldDeny {
			fmt.Println("would deny", e.Key, e.Limit.Name)
		}
	}))
	api := throttr.Limit{Name: "api", Max: 2, Scale: time.Minute, Shadow: true}
	for range 3 {
		res, err := limiter.Take(context.Background(), "user:42", api, 1)
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// would deny user:42 api
	// true 0 <nil>
}
