package inflight_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var exports = inflight.Limit{Name: "exports", Max: 2, Lease: time.Second}

// remote is a backend whose places are asked for in exchanges, as those of a store elsewhere.
type remote struct {
	*memory.Backend
	calls atomic.Int64 // exchanges
	deaf  atomic.Bool  // answers to what changes something are lost
	parts atomic.Bool  // the first letter of a key is the part of the store that keeps it
	bad   error        // of the key "bad"

	before atomic.Pointer[func(ctx context.Context, claims []window.Claim) error]
	places atomic.Pointer[ledger.Ledger]
}

func newRemote(t *testing.T) *remote {
	r := &remote{Backend: newMemory(t)}
	r.places.Store(r.Ledger())
	r.be(nil)
	return r
}

// losesItsData is that the store has lost its data.
func (r *remote) losesItsData() {
	now := func() time.Duration { return time.Duration(time.Now().UnixNano()) }
	l := ledger.New(100, now)
	l.Birth = now()
	r.places.Store(l)
}

// claim makes a claim.
func (r *remote) claim(c window.Claim) window.Places {
	p, wake := r.places.Load().Exchange(&c)
	if wake != nil {
		wake()
	}
	return p
}

// be has exchanges begin with f, or with nothing if that is nil. If it fails, they do.
func (r *remote) be(f func(ctx context.Context, claims []window.Claim) error) { r.before.Store(&f) }

// away is how a store fails that is away. No line has the key.
func away(_ context.Context, claims []window.Claim) error {
	err := fmt.Errorf("%w: connection refused", window.ErrUnavailable)
	return &api.CallError{Package: "remote", Call: "exchange", Key: claims[0].Key, Err: err}
}

// hangs is how a store fails that does not answer.
func hangs(ctx context.Context, _ []window.Claim) error {
	<-ctx.Done()
	return ctx.Err()
}

func (r *remote) Part(key string) string {
	if r.parts.Load() {
		return key[:1]
	}
	return ""
}

func (r *remote) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	r.calls.Add(1)
	if before := *r.before.Load(); before != nil {
		if err := before(ctx, claims); err != nil {
			return err
		}
	}
	for i := range claims {
		places[i] = r.claim(claims[i])
		same := func(other window.Claim) bool { return other.Key == claims[i].Key && other.Name == claims[i].Name }
		if claims[i].Held > window.MaxPlaces || slices.ContainsFunc(claims[:i], same) {
			panic("a claim is not valid")
		}
		if r.bad != nil && claims[i].Key == "bad" {
			places[i] = window.Places{Err: r.bad}
		}
		if r.parts.Load() {
			places[i].DataSet += uint64(claims[i].Key[0])
		}
	}
	if r.deaf.Load() && claims[0].Process != "" {
		return hangs(ctx, claims)
	}
	return nil
}

// used is how many places of a key are held, as far as the store knows.
func (r *remote) used(key string) uint64 {
	return r.claim(window.Claim{Key: key, Name: exports.Name}).Used
}

// newMemory returns a backend in memory that is closed at the end of the test.
func newMemory(t *testing.T) *memory.Backend {
	b := memory.New(memory.WithClock(time.Now))
	t.Cleanup(func() { b.Close() })
	return b
}

// each runs a test with a backend in memory, and with one that is asked.
func each(t *testing.T, test func(t *testing.T, b window.Backend)) {
	t.Run("memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newMemory(t)) }) })
	t.Run("remote", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, newRemote(t)) }) })
}

// remotely runs a test in a bubble, with a backend that is asked.
func remotely(t *testing.T, test func(t *testing.T, r *remote)) {
	synctest.Test(t, func(t *testing.T) { test(t, newRemote(t)) })
}

// cases runs a test for each case, in a bubble, with a backend that is asked.
func cases[C any](t *testing.T, all map[string]C, test func(t *testing.T, r *remote, c C)) {
	for name, c := range all {
		t.Run(name, func(t *testing.T) { remotely(t, func(t *testing.T, r *remote) { test(t, r, c) }) })
	}
}

// newLimiter returns a limiter that is closed at the end of the test.
func newLimiter(t *testing.T, b window.Backend, opts ...inflight.Option) *inflight.Limiter {
	l := inflight.New(b, append([]inflight.Option{inflight.WithLogger(nil)}, opts...)...)
	t.Cleanup(func() { l.Close() })
	return l
}

func acquire(t *testing.T, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) *inflight.Hold {
	t.Helper()
	h, ok, err := l.TryAcquire(t.Context(), key, limit, n)
	require.NoError(t, err)
	require.True(t, ok, "no place")
	require.True(t, h.Valid())
	return h
}

func denied(t *testing.T, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) {
	t.Helper()
	h, ok, err := l.TryAcquire(t.Context(), key, limit, n)
	require.NoError(t, err)
	require.True(t, !ok && h == nil)
}

// fails is that there is no decision, because of an error.
func fails(t *testing.T, l *inflight.Limiter, key string, limit inflight.Limit, target error) {
	t.Helper()
	h, ok, err := l.TryAcquire(t.Context(), key, limit, 1)
	require.ErrorIs(t, err, target)
	require.True(t, !ok && h == nil)
}

// waits acquires in a goroutine, which waits unless there is room, and gives back at once what it has got.
func waits(ctx context.Context, l *inflight.Limiter, key string, limit inflight.Limit, n uint64) <-chan error {
	done := make(chan error, 1)
	go func() {
		h, err := l.Acquire(ctx, key, limit, n)
		h.Release()
		done <- err
	}()
	synctest.Wait()
	return done
}

// told is what a Limiter has told: events, and log lines.
type told struct {
	mu     sync.Mutex // guards events
	events []inflight.Event
	lines  strings.Builder
}

func (r *told) options(opts ...inflight.Option) []inflight.Option {
	logger := inflight.WithLogger(slog.New(slog.NewTextHandler(&r.lines, nil)))
	return append(opts, logger, inflight.WithObserver(func(_ context.Context, e inflight.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}))
}

// kinds returns the kinds of events, in order.
func (r *told) kinds() (all []inflight.Kind) {
	synctest.Wait()
	for _, e := range r.events {
		all = append(all, e.Kind)
	}
	return all
}
