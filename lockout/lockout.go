// Package lockout shuts out who fails too often, such as somebody who guesses passwords, for longer each time. It
// keeps all that it knows as counts of a [throttr.RateLimit], so it holds for all processes that share a
// backend, and works with any of them.
//
//	guard, err := lockout.New(limiter, lockout.Config{
//		Failures: throttr.Limit{Name: "login", Max: 5, Scale: 15 * time.Minute},
//		Locks:    []time.Duration{time.Minute, 10 * time.Minute, time.Hour},
//	})
//
//	attempt, ok, err := guard.Try(ctx, throttr.Key("account", name))
//	if err != nil || !ok {
//		…	// refuse, without looking at the password
//	}
//	if !correct(name, password) {
//		err := attempt.Failed(ctx)
//		…
//	}
//	err = attempt.Succeeded(ctx)
//
// An attempt counts as a failure from Try until it has succeeded. So however many attempts there are at one time,
// at most Failures.Max of them are made that could fail. A key is locked out when so many have failed.
//
// Whoever guesses the passwords of one account comes from many addresses, and whoever tries one password on all
// accounts comes from few: use a Lockout for accounts, and another one, with a higher Max, for addresses. A
// handler of HTTP and an interceptor of gRPC use it in the same way: see admission.Addr for the key of an address.
package lockout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr"
)

// Config configures a [Lockout]. Failures is required.
type Config struct {
	// Failures is how many attempts of a key may fail: the last of them locks the key out. It needs a Name and a Max.
	// The names of three more limits begin with the Name: name.fails, name.lock and name.locks. With Shadow, nothing
	// is denied.
	//
	// On Throttr servers whose TTLs of Failures are in minutes (with 1 byte for a value those of more than 100 s, with
	// 2 bytes of more than 9 h), an attempt that lasts for over a second stays counted, although it has succeeded: see
	// docs/servers.md.
	Failures throttr.Limit
	// Locks are how long a key is locked out the first time, the second time, and so on. After the last of Locks, it is
	// for as long each time. There are at most 16, each longer than the one before. Default: 1 minute, 10 minutes, 1
	// hour.
	Locks []time.Duration
	// Memory is for how long it is remembered how often a key was locked out, from the first time: then the first of
	// Locks is next again. Default: 24 hours.
	Memory time.Duration
}

// maxLocks is the largest number of Config.Locks: each Try asks for all of them.
const maxLocks = 16

// Lockout shuts out keys. It is safe for concurrent use.
type Lockout struct {
	limiter  *throttr.RateLimit
	failures throttr.Limit   // Config.Failures: counts attempts that have failed, or are under way
	fails    throttr.Limit   // name.fails: counts those that have failed
	times    throttr.Limit   // name.locks: counts how often the key was locked out
	locks    []throttr.Limit // name.lock, of each length: counted means that the key is locked out until the window ends
	all      []throttr.Limit // these
}

// New returns a Lockout that counts with limiter. It panics if limiter is nil. The error matches
// [throttr.ErrConfig], and [throttr.ErrScale], [throttr.ErrRange] or [throttr.ErrUnsupported] if the RateLimit
// can't keep a limit.
func New(limiter *throttr.RateLimit, cfg Config) (*Lockout, error) {
	if limiter == nil {
		panic("lockout: New: limiter is nil")
	}
	if len(cfg.Locks) == 0 {
		cfg.Locks = []time.Duration{time.Minute, 10 * time.Minute, time.Hour}
	}
	switch {
	case cfg.Failures.Name == "":
		return nil, fmt.Errorf("%w: lockout: Failures has no Name", throttr.ErrConfig)
	case cfg.Failures.Max == 0:
		return nil, fmt.Errorf("%w: lockout: Failures.Max is at least 1", throttr.ErrConfig)
	case len(cfg.Locks) > maxLocks:
		return nil, fmt.Errorf("%w: lockout: Locks are at most %d", throttr.ErrConfig, maxLocks)
	}
	of := func(name string, most int, scale time.Duration) throttr.Limit {
		return throttr.Limit{
			Name: cfg.Failures.Name + name, Max: uint64(most), Scale: scale, Algorithm: throttr.FixedWindow,
		}
	}
	l := &Lockout{limiter: limiter, failures: cfg.Failures, fails: cfg.Failures}
	l.fails.Name += ".fails"
	l.fails.Shadow = false
	l.times = of(".locks", len(cfg.Locks), cmp.Or(cfg.Memory, 24*time.Hour))
	for i, d := range cfg.Locks {
		if i > 0 && d <= cfg.Locks[i-1] {
			return nil, fmt.Errorf("%w: lockout: each of Locks is longer than the one before", throttr.ErrConfig)
		}
		l.locks = append(l.locks, of(".lock", 1, d))
	}
	l.all = append([]throttr.Limit{l.failures, l.fails, l.times}, l.locks...)
	for _, limit := range l.all {
		if err := limiter.Check(limit); err != nil {
			return nil, fmt.Errorf("%w: lockout: limit %q: %w", throttr.ErrConfig, limit, err)
		}
	}
	return l, nil
}

// Try begins an attempt of a key. If ok is false, the key is locked out, or as many attempts as may fail have failed
// or are under way: see [Attempt.RetryAfter]. Otherwise the caller ends the attempt with Succeeded or Failed; one
// that is not ended counts as a failure. An error is that of the limiter: then a is nil, and it is not known whether
// the key is locked out.
func (l *Lockout) Try(ctx context.Context, key string) (a *Attempt, ok bool, err error) {
	a = &Attempt{lockout: l, key: key}
	if a.retryAfter, err = l.locked(ctx, key); err != nil {
		return nil, false, err
	}
	if a.retryAfter > 0 && !l.failures.Shadow {
		return a, false, nil
	}
	if a.taken, ok, err = l.limiter.Reserve(ctx, l.failures.For(key, 1)); err != nil {
		return nil, false, err
	}
	a.retryAfter = a.taken.Results()[0].RetryAfter
	if !ok || l.failures.Shadow {
		return a, ok, nil
	}
	// If the key was locked out since the first look, the failures were forgotten: that made room for this attempt.
	locked, err := l.locked(ctx, key)
	if err == nil && locked == 0 {
		return a, true, nil
	}
	if err := errors.Join(err, a.taken.Cancel(ctx)); err != nil {
		return nil, false, err
	}
	a.taken = nil
	a.retryAfter = locked
	return a, false, nil
}

// Locked returns for how long a key is locked out, and 0 if it is not, or if Failures has Shadow. It counts nothing:
// use it for what cannot fail, but is denied to a key that is locked out. An error is that of the limiter.
func (l *Lockout) Locked(ctx context.Context, key string) (time.Duration, error) {
	if l.failures.Shadow {
		return 0, nil
	}
	return l.locked(ctx, key)
}

// locked returns for how long a key is locked out.
func (l *Lockout) locked(ctx context.Context, key string) (longest time.Duration, err error) {
	results, errs := make([]throttr.Result, len(l.locks)), make([]error, len(l.locks))
	var peeks sync.WaitGroup
	for i, lock := range l.locks {
		peeks.Go(func() { results[i], errs[i] = l.limiter.Peek(ctx, key, lock, 0) })
	}
	peeks.Wait()
	for _, res := range results {
		if res.Count > 0 {
			longest = max(longest, res.ResetAfter)
		}
	}
	return longest, errors.Join(errs...)
}

// Fail counts a failure of a key without an attempt: for example, that another limit has denied it. Errors are those of
// [Attempt.Failed], and then the failure may not be counted. Fail does not depend on the end of ctx: whoever fails may
// have left.
func (l *Lockout) Fail(ctx context.Context, key string) error {
	ctx = context.WithoutCancel(ctx)
	_, err := l.charge(ctx, key, l.failures)
	return errors.Join(err, l.fail(ctx, key))
}

// fail counts a failure in l.fails, where attempts that are under way are not. The last one that may be locks the key
// out.
func (l *Lockout) fail(ctx context.Context, key string) error {
	res, err := l.charge(ctx, key, l.fails)
	if err != nil || res.Remaining > 0 {
		return err
	}
	return l.lock(ctx, key)
}

// Unlock forgets all failures and locks of a key. An error is that of the limiter.
func (l *Lockout) Unlock(ctx context.Context, key string) error {
	return l.limiter.Forget(ctx, key, l.all...)
}

// lock locks a key out. Of several calls at one time, the first one that counts in the shortest lock does it: if the
// key was locked out before, it counts in the longer lock, too. The other calls do nothing. If there is an error, the
// failures are not forgotten.
func (l *Lockout) lock(ctx context.Context, key string) error {
	first, err := l.charge(ctx, key, l.locks[0])
	if err != nil || first.Count > 1 {
		return err
	}
	times, err := l.charge(ctx, key, l.times)
	if err != nil {
		return err
	}
	if i := min(times.Count, uint64(len(l.locks))) - 1; i > 0 {
		// After a Fail, the last lock may be the one that is open. It begins anew; the shortest holds meanwhile.
		if err := l.limiter.Forget(ctx, key, l.locks[i]); err != nil {
			return err
		}
		if _, err := l.charge(ctx, key, l.locks[i]); err != nil {
			return err
		}
	}
	return l.limiter.Forget(ctx, key, l.failures, l.fails) // the lock is in their place
}

// charge counts 1. It fails if a policy has answered, which counts nothing.
func (l *Lockout) charge(ctx context.Context, key string, limit throttr.Limit) (throttr.Result, error) {
	res, err := l.limiter.Charge(ctx, key, limit, 1)
	if err == nil && res.Degraded && res.Count == 0 {
		err = fmt.Errorf("lockout: limit %q is not counted: %w", limit, throttr.ErrUnavailable)
	}
	return res, err
}

// Attempt is an attempt that may fail. End it with Succeeded or Failed: of several calls, the first one counts.
type Attempt struct {
	lockout    *Lockout
	key        string
	taken      *throttr.Reservation // of Failures; nil if the attempt was refused
	retryAfter time.Duration
	ended      atomic.Bool
}

// RetryAfter returns after which time to try again, if the attempt was refused.
func (a *Attempt) RetryAfter() time.Duration { return a.retryAfter }

// Succeeded ends the attempt: it was no failure. It does not depend on the end of ctx. Earlier failures stay: whoever
// knows one password may be guessing another. An error is that of the limiter: then the attempt may stay counted.
func (a *Attempt) Succeeded(ctx context.Context) error {
	if a.ended.Swap(true) {
		return nil
	}
	return a.taken.Cancel(ctx)
}

// Failed ends the attempt: it stays counted, and the last one that may fail locks the key out. If there is an error,
// the key may not be locked out, or for too short a time, but the failures are counted. It matches [throttr.ErrFull] if
// the store has no room for the lock, and [throttr.ErrUnavailable] if a policy of the RateLimit has answered in place
// of the store. Failed does not depend on the end of ctx.
func (a *Attempt) Failed(ctx context.Context) error {
	if a.taken == nil || a.ended.Swap(true) {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	return errors.Join(a.taken.Commit(ctx), a.lockout.fail(ctx, a.key))
}
