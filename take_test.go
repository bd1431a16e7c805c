package throttr_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
)

func TestAMaxOf0DeniesEverything(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	for a := throttr.FixedWindow; a <= throttr.SlidingLog; a++ {
		none, charged := throttr.Limit{Max: 0, Scale: time.Minute, Algorithm: a}, uint64(0)
		if a == throttr.TokenBucket {
			none.Burst = 5
		}
		for call, decide := range withPeek() {
			for _, n := range []uint64{0, 1, 5} {
				if call == "wait" || n == 0 && call != "peek" && call != "hit" { // a mistake
					continue
				}
				res := decided(t)(decide(t.Context(), limiter, none, n))
				require.False(t, res.Allowed, "%s of %d of %v", call, n, none)
				if call != "charge" { // which counts whatever the limit says, unless tokens never come back
					require.Equal(t, throttr.Never, res.RetryAfter, "%s of %d of %v", call, n, none)
				} else if !a.Rolling() {
					charged += n
					require.Equal(t, charged, res.Count, "%s of %d of %v", call, n, none)
					require.Equal(t, charged, decided(t)(limiter.Peek(t.Context(), "k", none, 0)).Count)
				}
			}
		}
	}
}

func TestACallThatCountsNothingOrANegativeNumberIsAMistake(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	for call, decide := range withPeek() {
		_, err := decide(t.Context(), limiter, tenAMinute, 0)
		if call != "hit" && call != "peek" {
			require.ErrorIs(t, err, throttr.ErrRange, call)
		}
		_, err = decide(t.Context(), limiter, tenAMinute, 1<<63)
		require.ErrorIs(t, err, throttr.ErrRange, call)
	}
	_, err := limiter.Inc(t.Context(), "k", time.Minute, 0)
	require.ErrorIs(t, err, throttr.ErrRange)
	require.ErrorContains(t, err, `inc "k"`)
}

// takesAllBy is a backend whose takes of several counts are made by a function.
type takesAllBy struct {
	throttr.Backend
	takeAll func(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error)
}

func (b takesAllBy) TakeAll(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	return b.takeAll(ctx, takes, windows)
}

func TestABackendMayUseTheTakesOfACallThatHasFailed(t *testing.T) {
	var kept []throttr.Take  // of the first call
	var late []window.Window // of the last call
	store := takesAllBy{inProcess(t), func(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
		if kept == nil {
			kept = takes
		}
		late = windows
		return false, context.DeadlineExceeded
	}}
	r := throttr.NewRateLimit(store, throttr.WithPolicy(throttr.AllowHits), throttr.WithBreaker(1000, 0))
	limit := throttr.Limit{Max: 10, Scale: time.Hour}
	longer := throttr.Limit{Max: 10, Scale: 2 * time.Hour}
	for i := range 100 {
		key := strconv.Itoa(i)
		ok, _ := allDecided(t)(r.TakeAll(t.Context(), limit.For(key, 1), longer.For(key, 1)))
		require.True(t, ok, "by the policy")
	}
	require.Equal(t, "0", kept[0].Key)

	// The fallback makes takes while the backend still writes the windows of its own.
	m := inProcess(t)
	fallback := takesAllBy{m, func(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
		granted, err := m.TakeAll(ctx, takes, windows)
		for i := range late {
			late[i] = window.Window{Count: 99}
		}
		return granted, err
	}}
	r = throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithLogger(nil))
	other := throttr.NewRateLimit(inProcess(t))
	for i := range 100 {
		key := strconv.Itoa(i)
		allDecided(t)(other.TakeAll(t.Context(), limit.For(key, 1), longer.For(key, 1))) // the next call may use its room
		_, results := allDecided(t)(r.TakeAll(t.Context(), limit.For(key, 1), longer.For(key, 2)))
		require.EqualValues(t, 1, results[0].Count)
		require.EqualValues(t, 2, results[1].Count)
	}
}

// A backend finds no windows of an earlier call in those that it sets.
func TestWindowsOfACallAreItsOwn(t *testing.T) {
	store := takesAllBy{inProcess(t), func(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
		for i := range windows {
			require.Zero(t, windows[i])
			windows[i] = window.Window{Count: takes[i].N, Left: time.Second}
		}
		return true, nil
	}}
	limiter := throttr.NewRateLimit(store)
	longer := tenAMinute
	longer.Scale = time.Hour
	for range 100 {
		ok, _ := allDecided(t)(limiter.TakeAll(t.Context(), tenAMinute.For("k", 1), longer.For("k", 1)))
		require.True(t, ok)
	}
}

// If one limit can never grant its take, wherever it stands, no store is asked.
func TestTakesOfWhichOneIsNeverGranted(t *testing.T) {
	limiter := throttr.NewRateLimit(inProcess(t))
	decided(t)(limiter.Take(t.Context(), "other", tenAMinute, 1))
	for _, takes := range [][]throttr.Take{
		{tenAMinute.For("k", 11), tenAMinute.For("other", 1)}, {tenAMinute.For("other", 1), tenAMinute.For("k", 11)},
	} {
		ok, results := allDecided(t)(limiter.TakeAll(t.Context(), takes...))
		require.False(t, ok)
		for i, take := range takes {
			want := throttr.Result{Limit: 10, Allowed: true}
			if take.N > 10 {
				want = throttr.Result{Limit: 10, RetryAfter: throttr.Never}
			}
			require.Equal(t, want, results[i])
		}
	}
	ok, results := allDecided(t)(limiter.TakeAll(t.Context()))
	require.True(t, ok, "without takes")
	require.Empty(t, results)
}
