package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// inProcess returns a backend of package memory that is closed at the end of the test.
func inProcess(t testing.TB, opts ...memory.Option) *memory.Backend {
	b := memory.New(opts...)
	t.Cleanup(func() { b.Close() })
	return b
}

// newMemory returns a backend in memory, and its clock, which moves by Advance alone.
func newMemory(t *testing.T) (*memory.Backend, backendtest.Clock) {
	clock := backendtest.NewClock()
	return inProcess(t, memory.WithClock(clock.Now)), clock
}

// inBubble calls f with a limiter in memory, in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, limiter *throttr.RateLimit), opts ...throttr.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, throttr.NewRateLimit(inProcess(t, memory.WithClock(time.Now)), opts...))
	})
}

// inBubbles calls f with a limiter in memory, and with one on a server, in virtual time.
func inBubbles(t *testing.T, f func(t *testing.T, limiter *throttr.RateLimit)) {
	t.Run("memory", func(t *testing.T) { inBubble(t, f) })
	testkit.Bubble(t, "server", func(t *testing.T) {
		_, client := testkit.Start[uint32](t, throttr.Config{})
		f(t, throttr.NewRateLimit(client.Backend()))
	})
}

// call is a call of a store. The key and limit of a TakeAll are those of its first take.
type call struct {
	name, key string
	limit     throttr.Limit
}

// fault is what happens to the calls of a store.
type fault func(ctx context.Context, c call) error

// distant is a store on the other side of a network. Calls and answers may get lost on the way.
type distant struct {
	testkit.Hooked
	asked          atomic.Int64 // calls
	calls, answers atomic.Pointer[fault]
}

// newDistant returns a store that is there.
func newDistant(t *testing.T) *distant {
	d := &distant{}
	d.Hooked = testkit.Hooked{Backend: inProcess(t, memory.WithClock(time.Now)), Around: d.call}
	return d
}

// failing returns a store whose calls return err.
func failing(t *testing.T, err error) *distant {
	d := newDistant(t)
	d.be(fails(err))
	return d
}

// be makes f happen to all calls before they are made, or nothing if that is nil.
func (d *distant) be(f fault) { d.calls.Store(&f) }

// answer makes f happen to all calls after they are made.
func (d *distant) answer(f fault) { d.answers.Store(&f) }

func (d *distant) call(ctx context.Context, name string, takes []throttr.Take, do func() error) error {
	d.asked.Add(1)
	c := call{name, takes[0].Key, takes[0].Limit}
	if c.limit.Shadow {
		return errors.New("a backend got a Shadow limit")
	}
	if f := d.calls.Load(); f != nil && *f != nil {
		if err := (*f)(ctx, c); err != nil {
			return err
		}
	}
	err := do()
	if f := d.answers.Load(); f != nil && err == nil {
		err = (*f)(ctx, c)
	}
	return err
}

func (d *distant) Reset(ctx context.Context, key string, l throttr.Limit) error {
	return d.call(ctx, "reset", []throttr.Take{l.For(key, 0)}, func() error { return d.Backend.Reset(ctx, key, l) })
}

// errDown is the error of a store that does not say that it is away.
var errDown = errors.New("down")

// The ways in which a store is there, or away.
var (
	near    = fault(func(context.Context, call) error { time.Sleep(time.Millisecond); return nil })
	hangs   = fault(func(ctx context.Context, _ call) error { <-ctx.Done(); return ctx.Err() })
	isDown  = fails(fmt.Errorf("%w: nobody listens", throttr.ErrUnavailable))
	refuses = fails(&net.OpError{Op: "dial", Err: errors.New("refused")})
	isSlow  = fault(func(ctx context.Context, _ call) error {
		select {
		case <-time.After(400 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	onlyReads = fault(func(_ context.Context, c call) error {
		if c.name == "peek" {
			return nil
		}
		return fmt.Errorf("%w: READONLY", throttr.ErrUnavailable)
	})
)

func fails(err error) fault { return func(context.Context, call) error { return err } }

// decision makes a call for n of a limit, of the key k.
type decision = func(ctx context.Context, l *throttr.RateLimit, limit throttr.Limit, n uint64) (throttr.Result, error)

// by makes a decision by a method.
func by(method func(*throttr.RateLimit, context.Context, string, throttr.Limit, uint64) (throttr.Result, error)) decision {
	return func(ctx context.Context, l *throttr.RateLimit, limit throttr.Limit, n uint64) (throttr.Result, error) {
		return method(l, ctx, "k", limit, n)
	}
}

// decisions are all calls that decide.
var decisions = map[string]decision{
	"hit": by((*throttr.RateLimit).HitN), "take": by((*throttr.RateLimit).Take), "wait": by((*throttr.RateLimit).Wait),
	"charge": by((*throttr.RateLimit).Charge),
	"take all": func(ctx context.Context, l *throttr.RateLimit, limit throttr.Limit, n uint64) (throttr.Result, error) {
		ok, results, err := l.TakeAll(ctx, limit.For("k", n))
		return only(ok, results, err)
	},
	"reserve": func(ctx context.Context, l *throttr.RateLimit, limit throttr.Limit, n uint64) (throttr.Result, error) {
		rv, ok, err := l.Reserve(ctx, limit.For("k", n))
		return only(ok, rv.Results(), err)
	},
}

// withPeek returns the calls that decide, and Peek, which tells what they would.
func withPeek() map[string]decision {
	all := maps.Clone(decisions)
	all["peek"] = by((*throttr.RateLimit).Peek)
	return all
}

// only returns the result of a single take.
func only(ok bool, results []throttr.Result, err error) (throttr.Result, error) {
	switch {
	case err != nil:
		return throttr.Result{}, err
	case len(results) != 1 || results[0].Allowed != ok:
		return throttr.Result{}, fmt.Errorf("ok is %v, and the results are %v", ok, results)
	}
	return results[0], nil
}

func reserve(t *testing.T, limiter *throttr.RateLimit, takes ...throttr.Take) *throttr.Reservation {
	t.Helper()
	rv, ok, err := limiter.Reserve(t.Context(), takes...)
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, rv.Results(), len(takes))
	return rv
}

func count(t *testing.T, limiter *throttr.RateLimit, key string, scale time.Duration) uint64 {
	t.Helper()
	n, err := limiter.Get(t.Context(), key, scale)
	require.NoError(t, err)
	return n
}

// decided returns a function that returns a result, and requires that there is no error.
func decided(t *testing.T) func(throttr.Result, error) throttr.Result {
	return func(res throttr.Result, err error) throttr.Result {
		t.Helper()
		require.NoError(t, err)
		return res
	}
}

// allDecided is decided for several takes.
func allDecided(t *testing.T) func(ok bool, results []throttr.Result, err error) (bool, []throttr.Result) {
	return func(ok bool, results []throttr.Result, err error) (bool, []throttr.Result) {
		t.Helper()
		require.NoError(t, err)
		return ok, results
	}
}
