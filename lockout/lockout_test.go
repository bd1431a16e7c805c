package lockout_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/lockout"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

var config = lockout.Config{
	Failures: throttr.Limit{Name: "login", Max: 3, Scale: 15 * time.Minute},
	Locks:    []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
	Memory:   6 * time.Hour,
}

// onBackends calls f with a lockout in memory, and with one on a server, in virtual time.
func onBackends(t *testing.T, cfg lockout.Config, f func(t *testing.T, guard *lockout.Lockout)) {
	run := func(t *testing.T, b throttr.Backend) {
		guard, err := lockout.New(throttr.NewRateLimit(b), cfg)
		require.NoError(t, err)
		f(t, guard)
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New(memory.WithClock(time.Now))
			defer b.Close()
			run(t, b)
		})
	})
	t.Run("server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithValueSize(2))
			run(t, testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend())
		})
	})
}

// try makes an attempt, which is not refused.
func try(t *testing.T, guard *lockout.Lockout, key string) *lockout.Attempt {
	t.Helper()
	a, ok, err := guard.Try(t.Context(), key)
	require.NoError(t, err)
	require.True(t, ok)
	return a
}

// failAll makes all attempts of a key fail that may, and requires that it is locked out then for so long.
func failAll(t *testing.T, guard *lockout.Lockout, key string, lock time.Duration) {
	t.Helper()
	for range config.Failures.Max {
		require.NoError(t, try(t, guard, key).Failed(t.Context()))
	}
	_, after := fail(t, guard, key)
	require.InDelta(t, lock.Seconds(), after.Seconds(), 2)
}

// fail makes an attempt that fails, and returns whether it was made, and if not, when to try again.
func fail(t *testing.T, guard *lockout.Lockout, key string) (bool, time.Duration) {
	t.Helper()
	a, ok, err := guard.Try(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, a.Failed(t.Context()))
	return ok, a.RetryAfter()
}

func TestALockoutGrows(t *testing.T) {
	onBackends(t, config, func(t *testing.T, guard *lockout.Lockout) {
		for _, lock := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, time.Hour} {
			failAll(t, guard, "k", lock)
			for range 5 { // what is refused is no failure, and makes no lock longer
				ok, after := fail(t, guard, "k")
				require.False(t, ok)
				require.InDelta(t, lock.Seconds(), after.Seconds(), 2)
			}
			require.NoError(t, try(t, guard, "other").Succeeded(t.Context()))
			time.Sleep(lock - 3*time.Second)
			ok, _ := fail(t, guard, "k")
			require.False(t, ok)
			time.Sleep(6 * time.Second)
		}
		time.Sleep(config.Memory)
		failAll(t, guard, "k", time.Minute) // the locks are forgotten
		require.NoError(t, guard.Unlock(t.Context(), "k"))
		failAll(t, guard, "k", time.Minute)
	})
}

// Attempts at one time: no more are made than may fail, and they are one lock.
func TestNoMoreAttemptsAreMadeThanMayFail(t *testing.T) {
	onBackends(t, config, func(t *testing.T, guard *lockout.Lockout) {
		var guesses atomic.Int64
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				a, ok, err := guard.Try(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					guesses.Add(1)
					time.Sleep(time.Second) // bcrypt
				}
				if err := a.Failed(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 3, guesses.Load())
		for range 5 { // refusals of another limit
			require.NoError(t, guard.Fail(t.Context(), "k"))
		}
		_, after := fail(t, guard, "k")
		require.InDelta(t, 60, after.Seconds(), 2, "the first lock")
	})
}

// peeks is a backend whose peeks end with a function.
type peeks struct {
	window.Backend
	end func(ctx context.Context) error
}

func (b *peeks) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	w, err := b.Backend.Peek(ctx, key, l, n)
	if err == nil {
		err = b.end(ctx)
	}
	return w, err
}

// Attempts have looked for a lock before there was one, and go on when it has forgotten the failures.
func TestALockThatComesMeanwhileIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithClock(time.Now))
		defer b.Close()
		type late struct{}
		slow := &peeks{b, func(ctx context.Context) error {
			if ctx.Value(late{}) != nil {
				time.Sleep(time.Second)
			}
			return nil
		}}
		guard, err := lockout.New(throttr.NewRateLimit(slow, throttr.WithTimeout(time.Minute)), config)
		require.NoError(t, err)
		var made atomic.Int32
		try := func(ctx context.Context) {
			if a, ok, err := guard.Try(ctx, "k"); err == nil && ok {
				made.Add(1)
				a.Failed(ctx)
			}
		}
		for range 20 {
			go try(context.WithValue(t.Context(), late{}, true))
		}
		time.Sleep(time.Millisecond)
		for range config.Failures.Max {
			try(t.Context())
		}
		time.Sleep(10 * time.Second)
		require.EqualValues(t, config.Failures.Max, made.Load())
	})
}

// If it can't be seen whether other attempts have succeeded, the last one that fails locks the key out. If it can't
// be seen whether a lock has come meanwhile, the attempt is not made, and counts nothing.
func TestLockoutsWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithClock(time.Now))
		defer b.Close()
		var left atomic.Int64 // peeks that do not fail
		failing := &peeks{b, func(context.Context) error {
			if left.Add(-1) < 0 {
				return throttr.ErrUnavailable
			}
			return nil
		}}
		cfg := config
		cfg.Locks = cfg.Locks[:1] // then an attempt peeks twice, and its failure once if it is the last one
		guard, err := lockout.New(throttr.NewRateLimit(failing), cfg)
		require.NoError(t, err)
		try := func(peeks int64) (*lockout.Attempt, bool, error) {
			left.Store(peeks)
			return guard.Try(t.Context(), "k")
		}
		for range 2 * cfg.Failures.Max {
			a, ok, err := try(1)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
			require.False(t, ok)
			require.Nil(t, a)
		}
		for range cfg.Failures.Max {
			a, ok, err := try(2)
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, a.Failed(t.Context()))
		}
		a, ok, err := try(2)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, time.Minute, a.RetryAfter(), "the lock, and not the window of the failures")
	})
}

func TestWhatSucceedsIsNoFailure(t *testing.T) {
	onBackends(t, config, func(t *testing.T, guard *lockout.Lockout) {
		for range 20 {
			require.NoError(t, try(t, guard, "k").Succeeded(t.Context()))
		}
		fail(t, guard, "k")
		fail(t, guard, "k")
		a := try(t, guard, "k")
		require.NoError(t, a.Succeeded(t.Context()))
		require.NoError(t, a.Failed(t.Context()), "it has ended: nothing has failed")
		try(t, guard, "k")
		all := []*lockout.Attempt{try(t, guard, "at one time"), try(t, guard, "at one time"), try(t, guard, "at one time")}
		require.NoError(t, all[0].Succeeded(t.Context()))
		require.NoError(t, all[2].Failed(t.Context()))
		try(t, guard, "at one time") // another attempt has succeeded meanwhile
		for range 3 {
			require.NoError(t, guard.Fail(t.Context(), "refused"))
		}
		_, after := fail(t, guard, "refused")
		require.InDelta(t, 60, after.Seconds(), 2)
	})
}

func TestALockoutInShadowDeniesNothing(t *testing.T) {
	cfg := config
	cfg.Failures.Shadow = true
	onBackends(t, cfg, func(t *testing.T, guard *lockout.Lockout) {
		for range 20 {
			ok, _ := fail(t, guard, "k")
			require.True(t, ok)
		}
	})
}

// down is a backend that fails.
type down struct{ window.Unimplemented }

func (down) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func TestErrorsOfLockouts(t *testing.T) {
	guard, err := lockout.New(throttr.NewRateLimit(down{}), config)
	require.NoError(t, err)
	a, ok, err := guard.Try(t.Context(), "k")
	require.Nil(t, a)
	require.False(t, ok)
	require.ErrorIs(t, err, throttr.ErrUnsupported)
	require.Error(t, guard.Fail(t.Context(), "k"))
	b := memory.New()
	defer b.Close()
	for text, change := range map[string]func(*lockout.Config){
		"no Name":    func(c *lockout.Config) { c.Failures.Name = "" },
		"at least 1": func(c *lockout.Config) { c.Failures.Max = 0 },
		"is longer":  func(c *lockout.Config) { c.Locks = []time.Duration{time.Minute, time.Minute} },
		"less than":  func(c *lockout.Config) { c.Locks = []time.Duration{60} },
		"at most 16": func(c *lockout.Config) { c.Locks = make([]time.Duration, 17) },
	} {
		cfg := config
		change(&cfg)
		_, err := lockout.New(throttr.NewRateLimit(b), cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, text)
	}
	_, err = lockout.New(throttr.NewRateLimit(b), lockout.Config{Failures: config.Failures})
	require.NoError(t, err)
	require.Panics(t, func() { lockout.New(nil, config) })
}

func Example() {
	backend := memory.New()
	defer backend.Close()
	guard, err := lockout.New(throttr.NewRateLimit(backend), lockout.Config{
		Failures: throttr.Limit{Name: "login", Max: 3, Scale: 15 * time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	login := func(ctx context.Context, name, password string) error {
		attempt, ok, err := guard.Try(ctx, throttr.Key("account", name))
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("locked out for %v", attempt.RetryAfter().Round(time.Minute))
		}
		if password != "correct" {
			return errors.Join(errors.New("wrong password"), attempt.Failed(ctx))
		}
		return attempt.Succeeded(ctx)
	}
	for _, password := range []string{"1", "correct", "2", "3", "correct"} {
		fmt.Println(password, login(context.Background(), "alice", password))
	}
	// Output:
	// 1 wrong password
	// correct <nil>
	// 2 wrong password
	// 3 wrong password
	// correct locked out for 1m0s
}

// guessAll guesses for 6 h whenever that is allowed, and returns how often, and the errors of failures.
func guessAll(t *testing.T, b *memory.Backend, policy throttr.Policy) (guesses int, errs []error) {
	guard, err := lockout.New(throttr.NewRateLimit(b, throttr.WithPolicy(policy)), lockout.Config{
		Failures: throttr.Limit{Name: "login", Max: 5, Scale: 15 * time.Minute}})
	require.NoError(t, err)
	for begun := time.Now(); time.Since(begun) < 6*time.Hour; {
		a, ok, err := guard.Try(t.Context(), "k")
		require.NoError(t, err)
		if !ok {
			time.Sleep(a.RetryAfter() + 1)
			continue
		}
		guesses++
		if err := a.Failed(t.Context()); err != nil {
			errs = append(errs, err)
		}
	}
	return guesses, errs
}

// A store without room for a lock says so, and keeps the failures. A policy hides what is wrong with the store.
func TestALockoutWithoutRoomAllowsNoMoreThanItsFailures(t *testing.T) {
	const windows = 6 * 60 / 15
	for policy, want := range map[throttr.Policy]error{throttr.ReturnError: throttr.ErrFull,
		throttr.AllowHits: throttr.ErrUnavailable, throttr.DenyHits: throttr.ErrUnavailable} {
		for most := range 5 {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(memory.WithMaxKeys(most))
				defer b.Close()
				guesses, errs := guessAll(t, b, policy)
				if most == 0 || most == 4 { // there is room
					require.Equal(t, 40, guesses)
					require.Empty(t, errs)
					return
				}
				require.LessOrEqual(t, guesses, 5*(windows+1))
				require.Len(t, errs, windows)
				for _, err := range errs {
					require.ErrorIs(t, err, want)
				}
			})
		}
	}
}
