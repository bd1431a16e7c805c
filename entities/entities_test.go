package entities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/entities"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var errDown = errors.New("down")

func newDown(opts ...throttr.Option) *entities.Limiter {
	return entities.New(throttr.NewRateLimit(testkit.Broken(memory.New(), errDown), opts...))
}

// clocked returns a Limiter, and the clock of its backend.
func clocked(t testing.TB, opts ...throttr.Option) (*entities.Limiter, backendtest.Clock) {
	clock := backendtest.NewClock()
	b := memory.New(memory.WithClock(clock.Now))
	t.Cleanup(func() { b.Close() })
	return entities.New(throttr.NewRateLimit(b, opts...)), clock
}

// upload is the operation of most tests.
func upload(most uint64) throttr.Limit {
	return throttr.Limit{Name: "upload", Max: most, Scale: time.Minute}
}

func TestDenialIsARateLimitError(t *testing.T) {
	users, clock := clocked(t)
	end := clock.Now().Add(time.Minute)
	require.NoError(t, users.Hit(t.Context(), "user:42", upload(1)))
	clock.Advance(20 * time.Second)
	err := users.Hit(t.Context(), "user:42", upload(1))

	var denied *throttr.RateLimitError
	require.ErrorAs(t, fmt.Errorf("wrapped: %w", err), &denied)
	require.True(t, denied.Result.ResetAt.Equal(end), "%v", denied.Result.ResetAt)
	denied.Result.ResetAt = time.Time{}
	require.Equal(t, &throttr.RateLimitError{
		Key: "user:42", Limit: upload(1),
		Result: throttr.Result{Count: 2, Limit: 1, RetryAfter: 40 * time.Second, ResetAfter: 40 * time.Second},
	}, denied)
	require.ErrorContains(t, err, `"user:42"`)
	require.ErrorContains(t, err, "upload: 1 in 1m0s")
	require.ErrorContains(t, err, "40s")
}

func TestMistakesAreValidationErrorsAndNotCounted(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for _, c := range []struct {
		entity, operation, field, message string
	}{
		{"", "upload", "entity", "entities: invalid argument: entity is empty"},
		{"user", "", "operation", "entities: invalid argument: operation is empty: it is the Name of the limit"},
		{long, "upload", "entity", "entities: invalid argument: entity is 1025 bytes, at most 1024 are allowed"},
	} {
		var calls int
		users := newDown(throttr.WithPolicy(throttr.AllowHits),
			throttr.WithObserver(func(context.Context, throttr.Event) { calls++ }))
		limit := throttr.Limit{Name: c.operation, Max: 5, Scale: time.Minute}
		for name, call := range map[string]func() error{
			"Hit": func() error { return users.Hit(t.Context(), c.entity, limit) },
			"Execute": func() error {
				return users.Execute(t.Context(), c.entity, limit, func(context.Context) error {
					t.Error("the function runs")
					return nil
				})
			},
			"Peek":    func() error { _, err := users.Peek(t.Context(), c.entity, limit); return err },
			"Reserve": func() error { _, err := users.Reserve(t.Context(), c.entity, limit, 1); return err },
			"Wait":    func() error { return users.Wait(t.Context(), c.entity, limit, 1) },
			"Reset":   func() error { return users.Reset(t.Context(), c.entity, limit) },
		} {
			err := call()
			require.EqualError(t, err, c.message, name)
			require.ErrorIs(t, err, entities.ErrValidation)
			var invalid *entities.ValidationError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, c.field, invalid.Field)
			require.NotErrorIs(t, err, throttr.ErrRateLimited)
		}
		require.Zero(t, calls)
	}
	users, _ := clocked(t)
	require.NoError(t, users.Hit(t.Context(), long[:1024], upload(1)))
	require.ErrorIs(t, users.Hit(t.Context(), "user", throttr.Limit{Name: "upload", Max: 1, Scale: 60}), throttr.ErrScale)
	none := entities.New(throttr.NewRateLimit(window.Unimplemented{}))
	require.ErrorIs(t, none.Reset(t.Context(), "user", upload(1)), throttr.ErrUnsupported)
	require.PanicsWithValue(t, "entities: New: limiter is nil", func() { entities.New(nil) })
}

func TestReserveAndWaitTake(t *testing.T) {
	users, _ := clocked(t)
	rv, err := users.Reserve(t.Context(), "user", upload(10), 8)
	require.NoError(t, err)
	refused, err := users.Reserve(t.Context(), "user", upload(10), 8)
	require.ErrorIs(t, err, throttr.ErrRateLimited)
	require.Nil(t, refused)
	_, err = newDown().Reserve(t.Context(), "user", upload(10), 8)
	require.ErrorIs(t, err, errDown)
	require.NoError(t, rv.Commit(t.Context(), 3))
	require.NoError(t, users.Wait(t.Context(), "user", upload(10), 7))
	res, err := users.Peek(t.Context(), "user", upload(10))
	require.NoError(t, err)
	require.EqualValues(t, 10, res.Count)
}

func TestExecuteRunsAllowedOperations(t *testing.T) {
	errJob := errors.New("job")
	users, _ := clocked(t)
	runs := 0
	execute := func(users *entities.Limiter, err error) error {
		return users.Execute(t.Context(), "user", upload(2), func(context.Context) error {
			runs++
			return err
		})
	}
	require.NoError(t, execute(users, nil))
	require.Equal(t, errJob, execute(users, errJob), "it is not wrapped")
	require.ErrorIs(t, execute(users, errJob), throttr.ErrRateLimited)
	require.ErrorIs(t, execute(newDown(), nil), errDown)
	require.Equal(t, 2, runs)
	users = newDown(throttr.WithPolicy(throttr.AllowHits))
	require.NoError(t, execute(users, nil))
	require.Equal(t, 3, runs, "a policy allows it")
	_, err := users.Peek(t.Context(), "user", upload(5))
	require.ErrorIs(t, err, errDown)
}

func TestObserversReadTheMetadataOfACall(t *testing.T) {
	var seen []map[string]any
	users, _ := clocked(t, throttr.WithObserver(func(ctx context.Context, e throttr.Event) {
		require.Equal(t, "user", e.Key)
		require.Equal(t, "upload", e.Limit.Name)
		seen = append(seen, entities.Metadata(ctx))
	}))
	given := map[string]any{"plan": "free"}
	ctx := entities.WithMetadata(t.Context(), given)
	given["plan"] = "changed"
	require.NoError(t, users.Hit(ctx, "user", upload(1)))
	require.Error(t, users.Hit(t.Context(), "user", upload(1)))
	require.Equal(t, []map[string]any{{"plan": "free"}, nil}, seen, "it is a copy")
}

func ExampleLimiter_Hit() {
	ctx := context.Background()
	backend := memory.New()
	defer backend.Close()
	users := entities.New(throttr.NewRateLimit(backend))
	upload := throttr.Limit{Name: "upload", Max: 1, Scale: time.Minute}

	for _, user := range []string{"user:42", "user:42", ""} {
		err := users.Hit(ctx, user, upload)
		var denied *throttr.RateLimitError
		switch {
		case err == nil:
			fmt.Println("200")
		case errors.As(err, &denied):
			fmt.Println("429, Retry-After:", denied.Result.RetryAfter.Round(time.Second).Seconds())
		case errors.Is(err, entities.ErrValidation):
			fmt.Println("500:", err)
		default:
			fmt.Println("503:", err)
		}
	}
	// Output:
	// 200
	// 429, Retry-After: 60
	// 500: entities: invalid argument: entity is empty
}

func ExampleLimiter_Execute() {
	ctx := context.Background()
	backend := memory.New()
	defer backend.Close()
	users := entities.New(throttr.NewRateLimit(backend))
	upload := throttr.Limit{Name: "upload", Max: 1, Scale: time.Minute}

	for range 2 {
		err := users.Execute(ctx, "user:42", upload, func(context.Context) error {
			fmt.Println("uploading")
			return nil
		})
		fmt.Println("limited:", errors.Is(err, throttr.ErrRateLimited))
	}
	// Output:
	// uploading
	// limited: false
	// limited: true
}
