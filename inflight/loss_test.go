package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/window"
)

// lossy is a store that can be away, and lose its data.
type lossy struct {
	window.Unimplemented
	*ledger.Ledger
	away  atomic.Bool
	calls atomic.Int64
}

func newLossy() *lossy {
	start := time.Now()
	return &lossy{Ledger: ledger.New(1000, func() time.Duration { return time.Since(start) })}
}

func (b *lossy) Exchange(_ context.Context, claims []window.Claim, places []window.Places) error {
	b.calls.Add(1)
	if b.away.Load() {
		return window.ErrUnavailable
	}
	for i := range claims {
		places[i] = b.Ledger.Exchange(&claims[i])
	}
	return nil
}

// used is how many places of a key are held, as far as the store knows.
func (b *lossy) used(key string) uint64 {
	return b.Ledger.Exchange(&window.Claim{Key: key, Name: exports.Name}).Used
}

// told is what a Limiter has told: log lines, and events of loss.
type told struct {
	lines  strings.Builder
	events atomic.Int64
}

func (r *told) options(opts ...inflight.Option) []inflight.Option {
	return append(opts, inflight.WithLogger(slog.New(slog.NewTextHandler(&r.lines, nil))), inflight.WithObserver(func(_ context.Context, e inflight.Event) {
		if e.Kind == inflight.DataLost {
			r.events.Add(1)
		}
	}))
}

func (r *told) require(t *testing.T, l *inflight.Limiter, losses int, text string) {
	t.Helper()
	require.EqualValues(t, losses, l.Stats().Losses)
	require.EqualValues(t, losses, r.events.Load())
	require.Equal(t, losses, strings.Count(r.lines.String(), text), r.lines.String())
	require.Equal(t, losses, strings.Count(r.lines.String(), "level=WARN"), r.lines.String())
}

// After a loss of data, places are granted at once. Processes tell what they hold with their next renewal, nobody's
// Hold ends, and nothing is granted until there is room.
func TestAStoreThatHasLostItsDataGrantsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20
		b := newLossy()
		var told told
		one, two := inflight.New(b, told.options()...), newLimiter(t, b)
		defer one.Close()
		var holds []*inflight.Hold
		for i := range keys {
			holds = append(holds, acquire(t, one, fmt.Sprint(i), exports, 2))
		}
		denied(t, two, "0", exports, 1)
		told.require(t, one, 0, "lost")
		b.Restart()
		more := acquire(t, two, "0", exports, 2)
		denied(t, two, "0", exports, 1)
		time.Sleep(exports.Lease / 4)
		require.EqualValues(t, 4, b.used("0"))
		for i := range keys {
			require.GreaterOrEqual(t, b.used(fmt.Sprint(i)), uint64(2), "the store is told what is held")
			require.True(t, holds[i].Valid() && !holds[i].Degraded())
		}
		holds[0].Release()
		synctest.Wait()
		denied(t, two, "0", exports, 1)
		more.Release()
		synctest.Wait()
		acquire(t, two, "0", exports, 2)
		told.require(t, one, 1, `msg="throttr: the store has lost its data: more places in flight than Max may be held"`)
		require.Zero(t, one.Stats().Lost)
		require.Zero(t, two.Stats().Losses, "it has lost nothing")

		time.Sleep(2 * exports.Lease)
		b.Restart()
		time.Sleep(exports.Lease)
		told.require(t, one, 2, `msg="throttr: the store has lost its data: more places in flight than Max may be held"`)
	})
}

// Whoever hears from another data set tells at once all that it holds.
func TestAnotherDataSetIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossy()
		l := newLimiter(t, b)
		for i := range 10 {
			acquire(t, l, fmt.Sprint(i), exports, 1)
		}
		time.Sleep(exports.Lease / 100)
		b.Restart()
		require.Zero(t, b.used("0"))
		acquire(t, l, "another", exports, 1)
		synctest.Wait()
		for i := range 10 {
			require.EqualValues(t, 1, b.used(fmt.Sprint(i)))
		}
		calls := b.calls.Load()
		acquire(t, l, "yet another", exports, 1)
		synctest.Wait()
		require.Equal(t, calls+1, b.calls.Load(), "once")
	})
}

// With WithStrict, nothing is granted for a lease after a loss of data: calls that do not wait are told for how long,
// and others wait.
func TestAStrictLimiterWaitsForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossy()
		var told told
		one, two := inflight.New(b, told.options(inflight.WithStrict())...), newLimiter(t, b, inflight.WithStrict())
		defer one.Close()
		first := acquire(t, one, "k", exports, 2)
		time.Sleep(exports.Lease / 100)
		b.Restart()
		lost := time.Now()
		left := exports.Lease
		for time.Since(lost) < exports.Lease {
			_, _, err := two.TryAcquire(t.Context(), "k", exports, 1)
			var notYet *inflight.NotYetError
			require.ErrorAs(t, err, &notYet)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
			require.Equal(t, left, notYet.RetryAfter)
			require.ErrorContains(t, err, "no places are granted for "+left.String())
			left -= exports.Lease / 20
			time.Sleep(exports.Lease / 20)
		}
		require.True(t, first.Valid())
		denied(t, two, "k", exports, 1)
		told.require(t, one, 1, "the store is new, or has lost its data: no places in flight are granted yet")

		first.Release()
		b.Restart()
		begun := time.Now()
		h, err := two.Acquire(t.Context(), "k", exports, 1)
		require.NoError(t, err)
		require.Equal(t, exports.Lease, time.Since(begun))
		h.Release()
		told.require(t, one, 1, "no places in flight are granted yet")
	})
}

// With WithStrict and Share, the policy decides while nothing is granted. What it has granted is not told: the store
// has no room for it.
func TestAStrictLimiterWithAPolicyGrantsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLossy()
		shares := newLimiter(t, b, inflight.WithStrict(), inflight.WithPolicy(inflight.Share))
		first := acquire(t, shares, "k", exports, 1)
		require.False(t, first.Degraded())
		b.Restart()
		second := acquire(t, shares, "k", exports, 1)
		require.True(t, second.Degraded())
		denied(t, shares, "k", exports, 1)
		synctest.Wait()
		require.EqualValues(t, 1, b.used("k"))
		require.EqualValues(t, 2, shares.Stats().InUse)

		b.away.Store(true)
		<-first.Context().Done()
		require.ErrorIs(t, context.Cause(first.Context()), inflight.ErrLost, "a policy keeps no place of a strict limiter")
		time.Sleep(exports.Lease)
		require.True(t, second.Valid(), "what the policy has granted is its own")
		second.Release()
		require.Zero(t, shares.Stats().InUse)
	})
}

// While the store is away, Share and Admit keep what is held, however long that is. When it is back, it is told.
func TestPoliciesKeepPlaces(t *testing.T) {
	for _, policy := range []inflight.Policy{inflight.Share, inflight.Admit} {
		synctest.Test(t, func(t *testing.T) {
			b := newLossy()
			var told told
			l, other := inflight.New(b, told.options(inflight.WithPolicy(policy))...), newLimiter(t, b)
			defer l.Close()
			h := acquire(t, l, "k", exports, 1)
			acquire(t, l, "quiet", exports, 1) // no place of it is granted by the policy
			b.away.Store(true)
			for range 40 {
				time.Sleep(exports.Lease / 20)
				require.True(t, h.Valid())
			}
			require.NoError(t, h.Context().Err())
			require.True(t, h.Degraded())
			alone := acquire(t, l, "k", exports, 1)
			require.True(t, alone.Degraded())
			require.Zero(t, alone.Token())
			if policy == inflight.Share {
				denied(t, l, "k", exports, 1)
			}
			b.away.Store(false)
			time.Sleep(exports.Lease)
			require.EqualValues(t, 2, b.used("k"))
			require.True(t, h.Valid() && alone.Valid() && !h.Degraded())
			denied(t, other, "k", exports, 1)
			h.Release()
			alone.Release()
			synctest.Wait()
			require.Zero(t, b.used("k"))
			require.Zero(t, l.Stats().Losses, "the store has lost nothing")
			require.Zero(t, told.events.Load())
			require.Zero(t, l.Stats().Lost)
		})
	}
}

// A short outage with a loss of data is noticed as such by whoever held places before.
func TestALossDuringAnOutageIsNoticed(t *testing.T) {
	for _, policy := range []inflight.Policy{inflight.Refuse, inflight.Share} {
		synctest.Test(t, func(t *testing.T) {
			b := newLossy()
			l := newLimiter(t, b, inflight.WithPolicy(policy))
			h := acquire(t, l, "k", exports, 1)
			time.Sleep(exports.Lease / 5)
			b.away.Store(true)
			b.Restart()
			time.Sleep(exports.Lease / 5)
			b.away.Store(false)
			time.Sleep(exports.Lease / 2)
			require.True(t, h.Valid())
			require.EqualValues(t, 1, b.used("k"))
			require.EqualValues(t, 1, l.Stats().Losses)
			require.False(t, errors.Is(h.Context().Err(), context.Canceled))
		})
	}
}
