package lockout_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/lockout"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

var config = lockout.Config{
	Failures: throttr.Limit{Name: "login", Max: 3, Scale: 15 * time.Minute},
	Locks:    []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
	Memory:   6 * time.Hour,
}

// on returns a lockout on a backend.
func on(t *testing.T, b throttr.Backend, cfg lockout.Config, opts ...throttr.Option) *lockout.Lockout {
	guard, err := lockout.New(throttr.NewRateLimit(b, append(opts, throttr.WithLogger(nil))...), cfg)
	require.NoError(t, err)
	return guard
}

// inMemory calls f with a backend in memory, in virtual time.
func inMemory(t *testing.T, f func(t *testing.T, b throttr.Backend), opts ...memory.Option) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(append(opts, memory.WithClock(time.Now))...)
		defer b.Close()
		f(t, b)
	})
}

// onBackends calls f with a lockout in memory, and with one on a server, in virtual time.
func onBackends(t *testing.T, f func(t *testing.T, guard *lockout.Lockout)) {
	t.Run("memory", func(t *testing.T) {
		inMemory(t, func(t *testing.T, b throttr.Backend) { f(t, on(t, b, config)) })
	})
	testkit.Bubble(t, "server", func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(2))
		f(t, on(t, testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(), config))
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

// fail makes an attempt that fails, and returns whether it was made, and if not, when to try again.
func fail(t *testing.T, guard *lockout.Lockout, key string) (bool, time.Duration) {
	t.Helper()
	a, ok, err := guard.Try(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, a.Failed(t.Context()))
	return ok, a.RetryAfter()
}

func TestALockoutGrows(t *testing.T) {
	onBackends(t, func(t *testing.T, guard *lockout.Lockout) {
		failAll := func(lock time.Duration) {
			for range config.Failures.Max {
				require.NoError(t, try(t, guard, "k").Failed(t.Context()))
			}
			for range 5 { // what is refused is no failure, and makes no lock longer
				ok, after := fail(t, guard, "k")
				require.False(t, ok)
				require.InDelta(t, lock.Seconds(), after.Seconds(), 2)
			}
		}
		for _, lock := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, time.Hour} {
			failAll(lock)
			require.NoError(t, try(t, guard, "other").Succeeded(t.Context()))
			time.Sleep(lock - 3*time.Second)
			ok, _ := fail(t, guard, "k")
			require.False(t, ok)
			time.Sleep(6 * time.Second)
		}
		time.Sleep(config.Memory)
		failAll(time.Minute) // the locks are forgotten
		require.NoError(t, guard.Unlock(t.Context(), "k"))
		failAll(time.Minute)
	})
}

// Fail counts also while the key is locked out: the last lock is then as long as before, from now on.
func TestTheLastLockBeginsAnew(t *testing.T) {
	onBackends(t, func(t *testing.T, guard *lockout.Lockout) {
		for range 4 { // 1 minute, 10 minutes, an hour, and an hour a minute before that ends
			for range config.Failures.Max {
				require.NoError(t, guard.Fail(t.Context(), "k"))
			}
			time.Sleep(59 * time.Minute)
		}
		left, err := guard.Locked(t.Context(), "k")
		require.NoError(t, err)
		require.InDelta(t, 60, left.Seconds(), 2)
	})
}

// Attempts at one time: no more are made than may fail, and they are one lock.
func TestNoMoreAttemptsAreMadeThanMayFail(t *testing.T) {
	onBackends(t, func(t *testing.T, guard *lockout.Lockout) {
		var guesses atomic.Int64
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				a, ok, err := guard.Try(t.Context(), "k")
				if assert.NoError(t, err) && ok {
					guesses.Add(1)
					time.Sleep(time.Second) // bcrypt
					assert.NoError(t, a.Failed(t.Context()))
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

// hooked returns a backend of which calls of some names are made by a function.
func hooked(b throttr.Backend, around func(ctx context.Context, do func() error) error, names ...string) throttr.Backend {
	return testkit.Hooked{Backend: b, Around: func(ctx context.Context, name string, _ []throttr.Take, do func() error) error {
		if !slices.Contains(names, name) {
			return do()
		}
		return around(ctx, do)
	}}
}

// Attempts have looked for a lock before there was one, and go on when it has forgotten the failures.
func TestALockThatComesMeanwhileIsSeen(t *testing.T) {
	inMemory(t, func(t *testing.T, b throttr.Backend) {
		type late struct{}
		slow := hooked(b, func(ctx context.Context, do func() error) error {
			err := do()
			if ctx.Value(late{}) != nil {
				time.Sleep(time.Second)
			}
			return err
		}, "peek")
		guard := on(t, slow, config, throttr.WithTimeout(time.Minute))
		var made atomic.Int32
		try := func(ctx context.Context) {
			switch a, ok, err := guard.Try(ctx, "k"); {
			case err == nil && ok:
				made.Add(1)
				a.Failed(ctx)
			case err != nil || a.RetryAfter() == 0:
				t.Error(a, err)
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

// A failure counts, whatever becomes of its client, and of other attempts that are under way. It takes as many as may
// fail to lock a key out, also if the store has not counted some and a policy has answered.
func TestAsManyFailuresAsMayBeLockAKeyOut(t *testing.T) {
	left, leave := context.WithCancel(context.Background())
	leave()
	most := int(config.Failures.Max)
	for name, failing := range map[string]func(t *testing.T, guard *lockout.Lockout, lose func(n int32)) (failures int){
		"of clients that have left": func(t *testing.T, guard *lockout.Lockout, _ func(int32)) int {
			require.NoError(t, guard.Fail(left, "k"))
			require.NoError(t, try(t, guard, "k").Failed(left))
			return 2
		},
		"beside attempts": func(t *testing.T, guard *lockout.Lockout, _ func(int32)) int {
			a := try(t, guard, "k")
			b := try(t, guard, "k")
			require.NoError(t, guard.Fail(t.Context(), "k"))
			require.NoError(t, a.Succeeded(left))
			require.NoError(t, b.Succeeded(t.Context()))
			return 1
		},
		"of an attempt beside others": func(t *testing.T, guard *lockout.Lockout, _ func(int32)) int {
			a := try(t, guard, "k")
			b := try(t, guard, "k")
			require.NoError(t, try(t, guard, "k").Failed(t.Context()))
			require.NoError(t, b.Succeeded(t.Context()))
			require.NoError(t, a.Succeeded(t.Context()))
			return 1
		},
		"lost": func(t *testing.T, guard *lockout.Lockout, lose func(int32)) int {
			for n := range int32(3) { // none, one or both of the two calls
				lose(n)
				err := guard.Fail(t.Context(), "k")
				require.Equal(t, n > 0, errors.Is(err, throttr.ErrUnavailable), err)
			}
			return 2 // of the second, the count of what has failed
		},
		"of an attempt that was lost": func(t *testing.T, guard *lockout.Lockout, lose func(int32)) int {
			lose(1)
			a := try(t, guard, "k")
			lose(1)
			require.ErrorIs(t, a.Failed(t.Context()), throttr.ErrUnavailable)
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, b throttr.Backend) {
				var lost atomic.Int32 // how many of the next charges and takes
				store := hooked(b, func(_ context.Context, do func() error) error {
					if lost.Add(-1) >= 0 {
						return throttr.ErrUnavailable
					}
					return do()
				}, "take", "charge")
				guard := on(t, store, config, throttr.WithPolicy(throttr.AllowHits), throttr.WithLogger(nil))
				failures := failing(t, guard, lost.Store)
				for range most - failures {
					after, err := guard.Locked(t.Context(), "k")
					require.NoError(t, err)
					require.Zero(t, after)
					require.NoError(t, guard.Fail(t.Context(), "k"))
				}
				after, err := guard.Locked(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, time.Minute, after)
			})
		})
	}
}

// What succeeds is no failure, and of a lockout in shadow, nothing is denied.
func TestWhatLocksNothingOut(t *testing.T) {
	inMemory(t, func(t *testing.T, b throttr.Backend) {
		guard := on(t, b, config)
		cfg := config
		cfg.Failures.Shadow = true
		shadow := on(t, b, cfg)
		for range 20 {
			require.NoError(t, try(t, guard, "k").Succeeded(t.Context()))
			require.NoError(t, try(t, shadow, "shadow").Failed(t.Context()))
		}
		fail(t, guard, "k")
		fail(t, guard, "k")
		a := try(t, guard, "k")
		require.NoError(t, a.Succeeded(t.Context()))
		require.NoError(t, a.Failed(t.Context()), "it has ended: nothing has failed")
		try(t, guard, "k")
		after, err := shadow.Locked(t.Context(), "shadow")
		require.NoError(t, err)
		require.Zero(t, after)
	})
}

// If it can't be seen whether there is a lock, or whether one has come meanwhile, the attempt is not made, and counts
// nothing.
func TestErrorsOfLockouts(t *testing.T) {
	inMemory(t, func(t *testing.T, b throttr.Backend) {
		var left atomic.Int64 // peeks that do not fail
		failing := hooked(b, func(_ context.Context, do func() error) error {
			if left.Add(-1) < 0 {
				return throttr.ErrUnavailable
			}
			return do()
		}, "peek")
		cfg := config
		cfg.Locks = cfg.Locks[:1] // then an attempt peeks twice
		guard := on(t, failing, cfg)
		for i := range 4 * cfg.Failures.Max {
			left.Store(int64(i % 2))
			a, ok, err := guard.Try(t.Context(), "k")
			require.ErrorIs(t, err, throttr.ErrUnavailable)
			require.False(t, ok)
			require.Nil(t, a)
		}
		left.Store(2)
		try(t, guard, "k")
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
	})
	require.Panics(t, func() { lockout.New(nil, config) })
}

// A store without room for a lock says so, and keeps the failures: whoever guesses for 6 h makes no more attempts than
// may fail. A policy hides what is wrong with the store.
func TestALockoutWithoutRoomAllowsNoMoreThanItsFailures(t *testing.T) {
	const windows = 6 * 60 / 15
	for policy, want := range map[throttr.Policy]error{throttr.ReturnError: throttr.ErrFull,
		throttr.AllowHits: throttr.ErrUnavailable, throttr.DenyHits: throttr.ErrUnavailable} {
		for most := range 6 {
			inMemory(t, func(t *testing.T, b throttr.Backend) {
				guard := on(t, b, lockout.Config{Failures: throttr.Limit{Name: "login", Max: 5, Scale: 15 * time.Minute}},
					throttr.WithPolicy(policy))
				guesses, errs := 0, 0
				for begun := time.Now(); time.Since(begun) < 6*time.Hour; {
					a, ok, err := guard.Try(t.Context(), "k")
					require.NoError(t, err)
					if !ok {
						time.Sleep(a.RetryAfter() + 1)
						continue
					}
					guesses++
					if err := a.Failed(t.Context()); err != nil {
						require.ErrorIs(t, err, want)
						errs++
					}
				}
				if most == 0 || most == 5 { // there is room
					require.Equal(t, []int{40, 0}, []int{guesses, errs})
					return
				}
				require.LessOrEqual(t, guesses, 5*(windows+1))
				if most == 1 { // there is no room for what has failed, either
					require.Equal(t, guesses, errs)
					return
				}
				require.Equal(t, windows, errs)
			}, memory.WithMaxKeys(most))
		}
	}
}
