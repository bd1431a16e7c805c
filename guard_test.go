package throttr_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// counted counts the calls of a backend that decide.
type counted struct {
	throttr.Backend
	calls atomic.Int64
	err   error
}

func (c *counted) Hit(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if c.calls.Add(1); c.err != nil {
		return w, c.err
	}
	return c.Backend.Hit(ctx, key, l, n)
}

func (c *counted) Take(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if c.calls.Add(1); c.err != nil {
		return w, c.err
	}
	return c.Backend.Take(ctx, key, l, n)
}

func (c *counted) Charge(ctx context.Context, key string, l throttr.Limit, n uint64) (w window.Window, err error) {
	if c.calls.Add(1); c.err != nil {
		return w, c.err
	}
	return c.Backend.Charge(ctx, key, l, n)
}

func (c *counted) TakeAll(ctx context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	if c.calls.Add(1); c.err != nil {
		return false, c.err
	}
	return c.Backend.TakeAll(ctx, takes, windows)
}

// Each decision asks the backend once, and the fallback once if that fails, whatever the outcome is.
func TestACallIsMadeOnce(t *testing.T) {
	limit, other := throttr.Limit{Max: 10, Scale: time.Hour}, throttr.Limit{Name: "other", Max: 10, Scale: time.Hour}
	for name, call := range map[string]func(r *throttr.RateLimit) error{
		"hit":      func(r *throttr.RateLimit) error { _, err := r.Hit(t.Context(), "k", time.Hour, 10); return err },
		"hit of 2": func(r *throttr.RateLimit) error { _, err := r.HitN(t.Context(), "k", limit, 2); return err },
		"take":     func(r *throttr.RateLimit) error { _, err := r.Take(t.Context(), "k", limit, 1); return err },
		"charge":   func(r *throttr.RateLimit) error { _, err := r.Charge(t.Context(), "k", limit, 1); return err },
		"take all": func(r *throttr.RateLimit) error {
			_, _, err := r.TakeAll(t.Context(), limit.For("k", 1), other.For("k", 1))
			return err
		},
		"reserve": func(r *throttr.RateLimit) error { _, _, err := r.Reserve(t.Context(), limit.For("k", 1)); return err },
		"wait":    func(r *throttr.RateLimit) error { _, err := r.Wait(t.Context(), "k", limit, 1); return err },
	} {
		for _, cause := range []error{nil, throttr.ErrFull, throttr.ErrUnavailable, throttr.ErrRange, fmt.Errorf("WRONGTYPE")} {
			for _, leases := range []bool{false, true} {
				b := &counted{Backend: inProcess(t), err: cause}
				var backend throttr.Backend = b
				if leases {
					l := lease.New(b)
					defer l.Close()
					backend = l
				}
				require.ErrorIs(t, call(throttr.NewRateLimit(backend, throttr.WithLogger(nil))), cause, name)
				require.EqualValues(t, 1, b.calls.Load(), "%s: %v", name, cause)
				second := &counted{Backend: inProcess(t), err: cause}
				_ = call(throttr.NewRateLimit(backend, throttr.WithLogger(nil), throttr.WithFallback(second)))
				require.EqualValues(t, 2, b.calls.Load(), "%s: %v", name, cause)
				require.LessOrEqual(t, second.calls.Load(), int64(1), "%s: %v", name, cause)
			}
		}
	}
}

// What wraps the memory of the process, or leases, may wait: it is a backend like any other.
type blockingMemory struct{ *memory.Backend }

func (blockingMemory) Take(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (w window.Window, err error) {
	<-ctx.Done()
	return w, ctx.Err()
}

type blockingLeases struct{ *lease.Backend }

func (blockingLeases) Take(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (w window.Window, err error) {
	<-ctx.Done()
	return w, ctx.Err()
}

type blockingBackend struct{ throttr.Backend }

func (blockingBackend) Take(ctx context.Context, _ string, _ throttr.Limit, _ uint64) (w window.Window, err error) {
	<-ctx.Done()
	return w, ctx.Err()
}

func TestAWrapperThatBlocksEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.WithClock(time.Now))
		defer m.Close()
		leases := lease.New(m, lease.WithAge(time.Hour))
		defer leases.Close()
		limit := throttr.Limit{Max: 1_000_000, Scale: time.Hour}
		held := throttr.NewRateLimit(leases)
		for range 100 {
			_, err := held.Take(t.Context(), "k", limit, 1)
			require.NoError(t, err)
		}
		require.Positive(t, leases.Blocks().Held)
		for _, b := range []throttr.Backend{blockingMemory{m}, blockingLeases{leases}, blockingBackend{m}, blockingBackend{leases}} {
			limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil))
			for i := range 4 {
				begun := time.Now()
				_, err := limiter.Take(t.Context(), "k", limit, 1)
				require.ErrorIs(t, err, throttr.ErrUnavailable)
				require.Equal(t, i == 3, time.Since(begun) == 0, "%T: the circuit is open after three calls", b)
			}
		}
	})
}

// A process that has nothing to decide notices the end of an outage, too.
func TestAnIdleProcessNoticesTheEndOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newDistant(t), &journal{}
		limiter := throttr.NewRateLimit(store, throttr.WithLogger(log.logger()), throttr.WithPolicy(throttr.AllowHits))
		store.be(isDown)
		for range 3 {
			_, err := limiter.Hit(t.Context(), "k", time.Hour, 10)
			require.NoError(t, err)
		}
		time.Sleep(time.Hour)
		require.Len(t, log.entries(t), 1)
		asked := store.asked.Load()
		require.InDelta(t, 3600/30, asked, 80, "it is spared")
		store.be(nil)
		time.Sleep(33 * time.Second)
		lines := log.entries(t)
		require.Len(t, lines, 2)
		require.Equal(t, "throttr: the store is back", lines[1]["msg"])
		asked = store.asked.Load()
		time.Sleep(time.Hour)
		require.Equal(t, asked, store.asked.Load())
		res, err := limiter.Hit(t.Context(), "k", time.Hour, 10)
		require.NoError(t, err)
		require.False(t, res.Degraded)
	})
}

// The probing of a store that is away does not keep a RateLimit that nobody uses.
func TestAnUnusedRateLimitEndsItsProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newDistant(t)
		store.be(isDown)
		limiter := throttr.NewRateLimit(store, throttr.WithLogger(nil), throttr.WithObserver(func(context.Context, throttr.Event) {}))
		for range 3 {
			_, err := limiter.Hit(t.Context(), "k", time.Hour, 10)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
		}
		used := weak.Make(limiter)
		limiter = nil
		time.Sleep(time.Minute)
		runtime.GC()
		require.Nil(t, used.Value())
		asked := store.asked.Load()
		time.Sleep(time.Hour)
		require.Equal(t, asked, store.asked.Load())
	})
}
