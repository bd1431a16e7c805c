package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
)

// clocked returns an Entities, and the clock of its backend.
func clocked(t *testing.T, opts ...throttr.Option) (*throttr.Entities, backendtest.Clock) {
	clock := backendtest.NewClock()
	return throttr.NewEntities(throttr.NewRateLimit(inProcess(t, memory.WithClock(clock.Now)), opts...)), clock
}

func TestEntityMayDoAnOperationLimitTimesPerWindow(t *testing.T) {
	entities, clock := clocked(t)
	check := func() error { return entities.Check(t.Context(), "user:42", "upload", 3, time.Minute, nil) }
	for range 2 {
		for range 3 {
			require.NoError(t, check())
		}
		for range 5 {
			require.ErrorIs(t, check(), throttr.ErrRateLimited)
		}
		clock.Advance(time.Minute)
	}
}

func TestDenialIsARateLimitError(t *testing.T) {
	entities, clock := clocked(t)
	start := clock.Now()
	metadata := map[string]any{"request": 7}
	require.NoError(t, entities.Check(t.Context(), "user:42", "upload", 1, time.Minute, metadata))
	clock.Advance(20 * time.Second)
	err := entities.Check(t.Context(), "user:42", "upload", 1, time.Minute, metadata)

	var denied *throttr.RateLimitError
	require.ErrorAs(t, fmt.Errorf("upload: %w", err), &denied)
	require.True(t, denied.ResetAt.Equal(start.Add(time.Minute)), "%v", denied.ResetAt)
	denied.ResetAt = time.Time{}
	require.Equal(t, &throttr.RateLimitError{
		Entity: "user:42", Operation: "upload", Limit: 1, Window: time.Minute, Count: 2,
		RetryAfter: 40 * time.Second, Metadata: map[string]any{"request": 7},
	}, denied)
	require.EqualError(t, err, `throttr: rate limit exceeded: "user:42" may "upload" 1 times in 1m0s; retry in 40s`)

	metadata["request"] = 8
	require.Equal(t, map[string]any{"request": 7}, denied.Metadata, "it is a copy")
	denied.Metadata["more"] = true
	require.Len(t, metadata, 1)
}

func TestDenialByAPolicyIsDegraded(t *testing.T) {
	limiter := throttr.NewRateLimit(newFailing(errDown), throttr.WithPolicy(throttr.DenyHits))
	err := throttr.NewEntities(limiter).Check(t.Context(), "user:42", "upload", 5, time.Minute, nil)
	var denied *throttr.RateLimitError
	require.ErrorAs(t, err, &denied)
	require.True(t, denied.Degraded)
	require.Equal(t, time.Second, denied.RetryAfter)
	require.NotErrorIs(t, err, errDown, "it is a denial, not a failure")
	require.Nil(t, denied.Metadata)
}

func TestPairsThatAreEqualWhenConcatenatedShareNoLimit(t *testing.T) {
	pairs := [][2]string{
		{"a", "b:c"}, {"a:b", "c"},
		{"a", ":b"}, {"a:", "b"},
		{"1:a", "b"}, {"1", "a:b"},
		{"1:a:b", "c"}, {"1:a", "b:c"},
		{"a", "b"}, {"b", "a"}, {"ab", "a"}, {"a", "ba"},
		{"a\x00", "b"}, {"a", "\x00b"}, {":", ":"}, {"::", ":"}, {":", "::"},
		{strings.Repeat("x", 10), "y"}, {strings.Repeat("x", 9), "xy"},
		{"é", "a"}, {"e\u0301", "a"}, {"\xff", "a"}, {"\ufffd", "a"},
	}
	// If two pairs shared a limit, the second one would be denied.
	entities, _ := clocked(t)
	for _, p := range pairs {
		require.NoError(t, entities.Check(t.Context(), p[0], p[1], 1, time.Minute, nil), "%q", p)
	}
	for _, p := range pairs {
		require.ErrorIs(t, entities.Check(t.Context(), p[0], p[1], 1, time.Minute, nil), throttr.ErrRateLimited, "%q", p)
	}
}

//evidence:limits No two pairs of entity and operation share a limit
func TestNoTwoShortPairsShareALimit(t *testing.T) {
	names := []string{"a", "1", ":"}
	for from := 0; len(names) < 3+9+27+81; {
		shorter := names[from:]
		from = len(names)
		for _, s := range shorter {
			names = append(names, s+"a", s+"1", s+":")
		}
	}
	entities, _ := clocked(t)
	for _, entity := range names {
		for _, operation := range names {
			if err := entities.Check(t.Context(), entity, operation, 1, time.Minute, nil); err != nil {
				t.Fatalf("%q %q: %v", entity, operation, err)
			}
		}
	}
}

func TestScalesOfOnePairShareNoLimit(t *testing.T) {
	entities, _ := clocked(t)
	for _, scale := range []time.Duration{time.Second, time.Minute} {
		require.NoError(t, entities.Check(t.Context(), "user:42", "upload", 1, scale, nil))
	}
}

func TestInvalidArgumentsAreValidationErrorsAndNotCounted(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for _, c := range []struct {
		entity, operation string
		scale             time.Duration
		field, message    string
	}{
		{"", "upload", time.Minute, "entity", "throttr: invalid rate limit: entity is empty"},
		{"user", "", time.Minute, "operation", "throttr: invalid rate limit: operation is empty"},
		{long, "upload", time.Minute, "entity", "throttr: invalid rate limit: entity is 1025 bytes, at most 1024 are allowed"},
		{"user", long, time.Minute, "operation", "throttr: invalid rate limit: operation is 1025 bytes, at most 1024 are allowed"},
		{"user", "upload", 0, "window", "throttr: invalid rate limit: window of 0s is shorter than 1ms; did you forget the unit?"},
		{"user", "upload", -time.Second, "window", "throttr: invalid rate limit: window of -1s is shorter than 1ms; did you forget the unit?"},
		{"user", "upload", 60, "window", "throttr: invalid rate limit: window of 60ns is shorter than 1ms; did you forget the unit?"},
	} {
		backend := newFailing(errDown)
		var seen recorder
		entities := throttr.NewEntities(throttr.NewRateLimit(backend, throttr.WithObserver(&seen), throttr.WithPolicy(throttr.AllowHits)))
		calls := map[string]func() error{
			"Check": func() error { return entities.Check(t.Context(), c.entity, c.operation, 5, c.scale, nil) },
			"Execute": func() error {
				return entities.Execute(t.Context(), c.entity, c.operation, 5, c.scale, nil, func(context.Context) error {
					t.Error("the function runs")
					return nil
				})
			},
			"Status": func() error {
				_, err := entities.Status(t.Context(), c.entity, c.operation, 5, c.scale)
				return err
			},
			"Reset": func() error { return entities.Reset(t.Context(), c.entity, c.operation, c.scale) },
		}
		for name, call := range calls {
			err := call()
			require.EqualError(t, err, c.message, name)
			require.ErrorIs(t, err, throttr.ErrValidation)
			var invalid *throttr.ValidationError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, c.field, invalid.Field)
			require.NotErrorIs(t, err, throttr.ErrRateLimited)
			require.Equal(t, c.field == "window", errors.Is(err, throttr.ErrScale))
		}
		require.Zero(t, backend.calls.Load())
		require.Empty(t, seen.events)
	}
}

func TestLongestNamesAreAccepted(t *testing.T) {
	entities, _ := clocked(t)
	long := strings.Repeat("x", 1024)
	require.NoError(t, entities.Check(t.Context(), long, long, 1, time.Minute, nil))
	require.ErrorIs(t, entities.Check(t.Context(), long, long, 1, time.Minute, nil), throttr.ErrRateLimited)
}

func TestDenialsMistakesAndFailuresAreDistinct(t *testing.T) {
	ok, _ := clocked(t)
	broken := throttr.NewEntities(throttr.NewRateLimit(newFailing(errDown)))
	for name, c := range map[string]struct {
		err             error
		denied, invalid bool
	}{
		"denial":  {ok.Check(t.Context(), "user", "upload", 0, time.Minute, nil), true, false},
		"mistake": {ok.Check(t.Context(), "", "upload", 0, time.Minute, nil), false, true},
		"failure": {broken.Check(t.Context(), "user", "upload", 0, time.Minute, nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, c.err)
			var denied *throttr.RateLimitError
			var invalid *throttr.ValidationError
			require.Equal(t, c.denied, errors.Is(c.err, throttr.ErrRateLimited))
			require.Equal(t, c.denied, errors.As(c.err, &denied))
			require.Equal(t, c.invalid, errors.Is(c.err, throttr.ErrValidation))
			require.Equal(t, c.invalid, errors.As(c.err, &invalid))
			require.Equal(t, !c.denied && !c.invalid, errors.Is(c.err, errDown))
		})
	}
}

func TestStatusDoesNotCount(t *testing.T) {
	entities, clock := clocked(t)
	status := func(limit uint64) throttr.Result {
		t.Helper()
		res, err := entities.Status(t.Context(), "user:42", "upload", limit, time.Minute)
		require.NoError(t, err)
		return res
	}
	require.Equal(t, throttr.Result{Allowed: true, Limit: 2, Remaining: 2}, status(2), "there is no window")
	require.Equal(t, throttr.Result{}, status(0), "nothing is allowed, and no window ends")

	end := clock.Now().Add(time.Minute)
	for count := uint64(1); count <= 3; count++ {
		before := status(2)
		err := entities.Check(t.Context(), "user:42", "upload", 2, time.Minute, nil)
		require.Equal(t, before.Allowed, err == nil, "Status predicts the next Check")
		clock.Advance(10 * time.Second)
		for range 3 {
			res := status(2)
			require.True(t, res.ResetAt.Equal(end))
			res.ResetAfter, res.ResetAt = 0, time.Time{}
			want := throttr.Result{Allowed: count < 2, Count: count, Limit: 2}
			if want.Allowed {
				want.Remaining = 2 - count
			} else {
				want.RetryAfter = time.Minute - time.Duration(count)*10*time.Second
			}
			require.Equal(t, want, res)
		}
	}
	require.True(t, status(4).Allowed, "the limit is not part of the window")
	clock.Advance(30 * time.Second)
	require.Equal(t, throttr.Result{Allowed: true, Limit: 2, Remaining: 2}, status(2), "the window is over")
}

func TestStatusAndResetFailWithTheBackend(t *testing.T) {
	entities := throttr.NewEntities(throttr.NewRateLimit(newFailing(errDown), throttr.WithPolicy(throttr.AllowHits)))
	res, err := entities.Status(t.Context(), "user", "upload", 5, time.Minute)
	require.ErrorIs(t, err, errDown)
	require.Zero(t, res)
	require.ErrorIs(t, entities.Reset(t.Context(), "user", "upload", time.Minute), errDown)
}

func TestResetEndsTheWindowOfOnePair(t *testing.T) {
	entities, _ := clocked(t)
	check := func(entity string, scale time.Duration) error {
		return entities.Check(t.Context(), entity, "upload", 1, scale, nil)
	}
	for _, entity := range []string{"a", "b"} {
		require.NoError(t, check(entity, time.Minute))
		require.NoError(t, check(entity, time.Hour))
	}
	require.NoError(t, entities.Reset(t.Context(), "a", "upload", time.Minute))
	require.NoError(t, check("a", time.Minute))
	require.ErrorIs(t, check("a", time.Minute), throttr.ErrRateLimited)
	require.ErrorIs(t, check("a", time.Hour), throttr.ErrRateLimited)
	require.ErrorIs(t, check("b", time.Minute), throttr.ErrRateLimited)
	require.NoError(t, entities.Reset(t.Context(), "unknown", "upload", time.Minute), "there is no window")
}

func TestExecuteRunsAllowedOperationsOnce(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, 7)
	errJob := errors.New("job")
	entities, _ := clocked(t)
	runs := 0
	execute := func(entities *throttr.Entities, err error) error {
		return entities.Execute(ctx, "user", "job", 2, time.Minute, map[string]any{"id": 9}, func(ctx context.Context) error {
			require.Equal(t, 7, ctx.Value(key{}))
			runs++
			return err
		})
	}
	require.NoError(t, execute(entities, nil))
	require.Equal(t, 1, runs)
	require.Equal(t, errJob, execute(entities, errJob), "it is not wrapped")
	require.Equal(t, 2, runs)

	err := execute(entities, errJob)
	var denied *throttr.RateLimitError
	require.ErrorAs(t, err, &denied)
	require.Equal(t, map[string]any{"id": 9}, denied.Metadata)
	require.NotErrorIs(t, err, errJob)
	require.Equal(t, 2, runs, "the function does not run if denied")

	require.Equal(t, errDown, execute(throttr.NewEntities(throttr.NewRateLimit(newFailing(errDown))), nil))
	require.Equal(t, 2, runs, "the function does not run if the backend fails")

	allowing := throttr.NewRateLimit(newFailing(errDown), throttr.WithPolicy(throttr.AllowHits))
	require.NoError(t, execute(throttr.NewEntities(allowing), nil))
	require.Equal(t, 3, runs, "the function runs if a policy allows it")
}

func TestConcurrentExecutesRunLimitTimes(t *testing.T) {
	entities, _ := clocked(t)
	var runs, denials atomic.Int64
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for range 50 {
				err := entities.Execute(t.Context(), "user", "job", 100, time.Minute, nil, func(context.Context) error {
					runs.Add(1)
					return nil
				})
				if errors.Is(err, throttr.ErrRateLimited) {
					denials.Add(1)
				}
			}
		})
	}
	callers.Wait()
	require.EqualValues(t, 100, runs.Load())
	require.EqualValues(t, 32*50-100, denials.Load())
}

// What does a Check cost, compared with a hit?
func BenchmarkEntitiesCheck(b *testing.B) {
	limiter := throttr.NewRateLimit(inProcess(b))
	entities := throttr.NewEntities(limiter)
	b.Run("hit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			limiter.Hit(b.Context(), "7:user:42:upload", time.Hour, 1<<60)
		}
	})
	b.Run("allowed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			entities.Check(b.Context(), "user:42", "upload", 1<<60, time.Hour, nil)
		}
	})
	b.Run("denied", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			entities.Check(b.Context(), "user:42", "upload", 0, time.Hour, nil)
		}
	})
}

func TestKeysOfSeveralPartsAreNeverTheSame(t *testing.T) {
	require.Equal(t, "user:42", throttr.Key("user", "42"))
	require.Equal(t, `user:42:ip:2001\:db8\:\:1`, throttr.Key("user", "42", "ip", "2001:db8::1"))
	parts := []string{"", "a", ":", `\`, `\:`, `:\`, "a:", ":a", "\x00", "\xff"}
	seen := map[string][]string{}
	var all func(prefix []string, more int)
	all = func(prefix []string, more int) {
		if len(prefix) > 0 {
			key := throttr.Key(prefix...)
			if other, ok := seen[key]; ok {
				t.Fatalf("%q has the key of %q", prefix, other)
			}
			seen[key] = prefix
		}
		if more > 0 {
			for _, p := range parts {
				all(append(prefix[:len(prefix):len(prefix)], p), more-1)
			}
		}
	}
	all(nil, 4)
	require.Len(t, seen, 10+100+1000+10000)
	require.Zero(t, testing.AllocsPerRun(100, func() { throttr.Key("user") }))
}

func TestFurtherPartsDivideTheLimitsOfEntities(t *testing.T) {
	ctx := t.Context()
	backend := memory.New()
	t.Cleanup(func() { backend.Close() })
	var events []throttr.Event
	entities := throttr.NewEntities(throttr.NewRateLimit(backend, throttr.WithObserver(throttr.ObserverFunc(
		func(_ context.Context, e throttr.Event) { events = append(events, e) }))))
	a, b := entities.With("10.0.0.1"), entities.With("10.0.0.2")
	for _, n := range []*throttr.Entities{entities, a, b, a.With("x"), entities.With("10.0.0.1", "x", "y")} {
		require.NoError(t, n.Check(ctx, "user:42", "login", 1, time.Hour, nil), "each has a limit of its own")
		require.ErrorIs(t, n.Check(ctx, "user:42", "login", 1, time.Hour, nil), throttr.ErrRateLimited)
	}
	require.ErrorIs(t, entities.With("10.0.0.1", "x").Check(ctx, "user:42", "login", 1, time.Hour, nil), throttr.ErrRateLimited,
		"With can be called on a result of With")
	require.NoError(t, a.Reset(ctx, "user:42", "login", time.Hour))
	s, err := a.Status(ctx, "user:42", "login", 1, time.Hour)
	require.NoError(t, err)
	require.True(t, s.Allowed)
	s, err = b.Status(ctx, "user:42", "login", 1, time.Hour)
	require.NoError(t, err)
	require.False(t, s.Allowed)

	var denied *throttr.RateLimitError
	require.ErrorAs(t, b.Check(ctx, "user:42", "login", 1, time.Hour, nil), &denied)
	require.Equal(t, []string{"10.0.0.2"}, denied.Parts)
	require.ErrorContains(t, denied, `"user:42" with ["10.0.0.2"] may "login" 1 times in 1h0m0s`)
	last := events[len(events)-1]
	require.Equal(t, []string{"10.0.0.2"}, last.Parts)
	require.Equal(t, `+user\:42:login:10.0.0.2`, last.Key)

	var invalid *throttr.ValidationError
	require.ErrorAs(t, entities.With("").Check(ctx, "user:42", "login", 1, time.Hour, nil), &invalid)
	require.Equal(t, "part", invalid.Field)
}
