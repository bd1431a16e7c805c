package throttr_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/window"
)

// verdict is a backend that grants or refuses everything, with a window that may not agree.
type verdict struct {
	window.Unimplemented
	granted   bool
	window    window.Window
	algorithm throttr.Algorithm // that of its limiters
}

func (v verdict) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func (v verdict) Hit(context.Context, string, throttr.Limit, uint64) (window.Window, error) {
	return v.window, nil
}

func (v verdict) Take(context.Context, string, throttr.Limit, uint64) (window.Window, error) {
	w := v.window
	w.Refused = !v.granted
	return w, nil
}

func (v verdict) TakeAll(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	for i := range takes {
		windows[i] = v.window
	}
	return v.granted, nil
}

func (v verdict) GiveBack(context.Context, string, throttr.Limit, uint64, int64) (bool, error) {
	return true, nil
}

// verdicts are backends whose windows do not agree with what they decide. Limits are 10.
func verdicts() (all []verdict) {
	for _, w := range []window.Window{
		{}, {Refused: true}, {RetryAfter: time.Second}, {Count: 10, Left: time.Minute}, {Count: 11, Left: time.Minute},
		{Count: 1, Left: time.Minute, RetryAfter: time.Second, Refused: true}, {Count: 1 << 60, Left: time.Minute, Refused: true},
	} {
		w.ID = 1
		for _, algorithm := range []throttr.Algorithm{throttr.FixedWindow, throttr.SlidingWindow} {
			all = append(all, verdict{window: w, algorithm: algorithm}, verdict{window: w, algorithm: algorithm, granted: true})
		}
	}
	return all
}

func (v verdict) String() string {
	return fmt.Sprintf("%v, granted %v, refused %v, count %d, retry after %v",
		v.algorithm, v.granted, v.window.Refused, v.window.Count, v.window.RetryAfter)
}

// A take is allowed if and only if the backend has granted it, whatever its window says.
func TestWhatABackendGrantsIsWhatIsAllowed(t *testing.T) {
	for _, v := range verdicts() {
		t.Run(v.String(), func(t *testing.T) {
			testVerdict(t, throttr.NewRateLimit(v, throttr.WithAlgorithm(v.algorithm)), v.granted)
			away := failing(t, throttr.ErrConnLost)
			testVerdict(t, throttr.NewRateLimit(away, throttr.WithAlgorithm(v.algorithm), throttr.WithFallback(v)), v.granted)
			if v.algorithm != throttr.FixedWindow {
				return
			}
			leases := lease.New(v, lease.WithAge(time.Hour))
			defer leases.Close()
			testVerdict(t, throttr.NewRateLimit(leases), v.granted)
		})
	}
}

func testVerdict(t *testing.T, limiter *throttr.RateLimit, granted bool) {
	limit := throttr.Limit{Max: 10, Scale: time.Minute}
	k, other := limit.For("k", 1), limit.For("l", 1)
	res := decided(t)(limiter.Take(t.Context(), "k", limit, 1))
	require.Equal(t, granted, res.Allowed)
	for _, takes := range [][]throttr.Take{{k}, {k, k}, {k, other}} {
		ok, results := allDecided(t)(limiter.TakeAll(t.Context(), takes...))
		requireVerdict(t, granted, ok, results)
		rv, ok, err := limiter.Reserve(t.Context(), takes...)
		require.NoError(t, err)
		requireVerdict(t, granted, ok, rv.Results())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
	defer cancel()
	if granted {
		ctx = t.Context()
	}
	res, err := limiter.Wait(ctx, "k", limit, 1)
	require.Equal(t, granted, err == nil && res.Allowed, err)
}

// requireVerdict fails a test if takes that were granted are denied, or the other way round.
func requireVerdict(t *testing.T, granted, ok bool, results []throttr.Result) {
	t.Helper()
	require.Equal(t, granted, ok)
	allowed := 0
	for _, res := range results {
		if res.Allowed {
			allowed++
			require.Zero(t, res.RetryAfter)
		}
	}
	if granted {
		require.Len(t, results, allowed)
	} else {
		require.Less(t, allowed, len(results))
	}
}

// What a backend refuses is denied. A hit that it has not refused is allowed if the algorithm has decided
// on it, and otherwise if the count is within the limit.
func TestAHitThatABackendRefusesIsDenied(t *testing.T) {
	for _, v := range verdicts() {
		within := !v.window.Refused && v.window.Count <= 10
		allowed := within || !v.window.Refused && v.algorithm.Rolling()
		var event throttr.Event
		observer := throttr.WithObserver(func(_ context.Context, e throttr.Event) { event = e })
		for name, limiter := range map[string]*throttr.RateLimit{
			"backend":  throttr.NewRateLimit(v, throttr.WithAlgorithm(v.algorithm)),
			"observer": throttr.NewRateLimit(v, throttr.WithAlgorithm(v.algorithm), observer),
			"fallback": throttr.NewRateLimit(failing(t, throttr.ErrConnLost), throttr.WithAlgorithm(v.algorithm), throttr.WithFallback(v)),
		} {
			for _, n := range []uint64{0, 1, 10} {
				res := decided(t)(limiter.HitN(t.Context(), "k", throttr.Limit{Max: 10, Calendar: throttr.Day}, n))
				require.Equal(t, !within, res.RetryAfter > 0, "%s: %v", name, v)
				res = decided(t)(limiter.HitN(t.Context(), "k", throttr.Limit{Max: 10, Scale: time.Minute}, n))
				require.Equal(t, allowed, res.Allowed, "%s: %v", name, v)
				require.Equal(t, !allowed, res.RetryAfter > 0, "%s: %v", name, v)
			}
		}
		require.Equal(t, allowed, event.Kind == throttr.EventAllowed, "%v", v)
	}
}
