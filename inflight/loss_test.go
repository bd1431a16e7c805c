package inflight_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
)

// requireLosses is that so many losses of data were told, with a line and an event for each.
func (r *told) requireLosses(t *testing.T, l *inflight.Limiter, losses int, text string) {
	t.Helper()
	events := slices.DeleteFunc(r.all(), func(e string) bool { return e != inflight.DataLost.String() })
	require.EqualValues(t, losses, l.Stats().Losses)
	require.Len(t, events, losses)
	require.Equal(t, losses, strings.Count(r.lines.String(), text), r.lines.String())
	require.Equal(t, losses, strings.Count(r.lines.String(), "level=WARN"), r.lines.String())
}

// After a loss of data, places are granted at once. Processes tell what they hold with their next renewal, nobody's
// Hold ends, and nothing is granted until there is room.
func TestAStoreThatHasLostItsDataGrantsAtOnce(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		const line = `msg="throttr: the store has lost its data: more places in flight than Max may be held"`
		var told told
		one, two := newLimiter(t, r, told.options()...), newLimiter(t, r)
		h, quiet := acquire(t, one, "k", exports, 2), acquire(t, one, "quiet", exports, 2)
		denied(t, two, "k", exports, 1)
		told.requireLosses(t, one, 0, "lost")
		r.losesItsData()
		more := acquire(t, two, "k", exports, 2)
		denied(t, two, "k", exports, 1)
		time.Sleep(exports.Lease / 4)
		require.EqualValues(t, 4, r.used("k"))
		require.EqualValues(t, 2, r.used("quiet"), "the store is told what is held")
		require.True(t, h.Valid() && quiet.Valid() && !h.Degraded())
		h.Release()
		synctest.Wait()
		denied(t, two, "k", exports, 1)
		more.Release()
		synctest.Wait()
		acquire(t, two, "k", exports, 2)
		told.requireLosses(t, one, 1, line)
		require.Zero(t, one.Stats().Lost)
		require.Zero(t, two.Stats().Losses, "it has lost nothing")

		time.Sleep(2 * exports.Lease)
		r.losesItsData()
		time.Sleep(exports.Lease)
		told.requireLosses(t, one, 2, line)
	})
}

// Whoever hears from another data set tells at once all that it holds.
func TestAnotherDataSetIsToldAtOnce(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		l := newLimiter(t, r)
		acquire(t, l, "k", exports, 1)
		acquire(t, l, "quiet", exports, 1)
		time.Sleep(exports.Lease / 100)
		r.losesItsData()
		acquire(t, l, "another", exports, 1)
		synctest.Wait()
		require.EqualValues(t, 2, r.used("k")+r.used("quiet"))
		calls := r.calls.Load()
		acquire(t, l, "yet another", exports, 1)
		synctest.Wait()
		require.Equal(t, calls+1, r.calls.Load(), "once")

		r = newRemote(t)
		r.parts.Store(true) // each has a data set
		l = newLimiter(t, r)
		for _, key := range []string{"a", "b", "c"} {
			acquire(t, l, key, exports, 1)
			synctest.Wait()
		}
		require.EqualValues(t, 3, r.calls.Load())
	})
}

// With WithStrict, nothing is granted for a lease after a loss of data: calls that do not wait are told for how long,
// and others wait.
func TestAStrictLimiterWaitsForALease(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		const line = "the store is new, or has lost its data: no places in flight are granted yet"
		var told told
		one, two := newLimiter(t, r, told.options(inflight.WithStrict())...), newLimiter(t, r, inflight.WithStrict())
		first := acquire(t, one, "k", exports, 1)
		time.Sleep(exports.Lease / 100)
		r.losesItsData()
		for left := exports.Lease; left > 0; left -= exports.Lease / 20 {
			_, _, err := two.TryAcquire(t.Context(), "k", exports, 1)
			var notYet *inflight.NotYetError
			require.ErrorAs(t, err, &notYet)
			require.ErrorIs(t, err, throttr.ErrUnavailable)
			require.Equal(t, left, notYet.RetryAfter)
			require.ErrorContains(t, err, "no places are granted for "+left.String())
			time.Sleep(exports.Lease / 20)
		}
		require.True(t, first.Valid())
		denied(t, two, "k", exports, 2)
		told.requireLosses(t, one, 1, line)

		r.losesItsData()
		begun := time.Now()
		require.NoError(t, <-waits(t.Context(), two, "k", exports, 1))
		require.Equal(t, exports.Lease, time.Since(begun))
		told.requireLosses(t, one, 1, line) // what is noticed within a lease of the last one is the same
		require.True(t, first.Valid())
	})
}

// With WithStrict and Share, the policy decides while nothing is granted. What it has granted is not told: the store
// has no room for it.
func TestAStrictLimiterWithAPolicyGrantsApart(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		shares := newLimiter(t, r, inflight.WithStrict(), inflight.WithPolicy(inflight.Share))
		first := acquire(t, shares, "k", exports, 1)
		require.False(t, first.Degraded())
		r.losesItsData()
		second := acquire(t, shares, "k", exports, 1)
		require.True(t, second.Degraded())
		denied(t, shares, "k", exports, 1)
		synctest.Wait()
		require.EqualValues(t, 1, r.used("k"))
		require.EqualValues(t, 2, shares.Stats().InUse)

		r.be(away)
		<-first.Context().Done()
		require.ErrorIs(t, context.Cause(first.Context()), inflight.ErrLost, "a policy keeps no place of a strict limiter")
		time.Sleep(exports.Lease)
		require.True(t, second.Valid(), "what the policy has granted is its own")
		second.Release()
		require.Zero(t, shares.Stats().InUse)
		acquire(t, shares, "k", exports, 2)
	})
}

// While the store is away, Share and Admit keep what is held, however long that is. When it is back, it is told.
func TestPoliciesKeepPlaces(t *testing.T) {
	for _, policy := range []inflight.Policy{inflight.Share, inflight.Admit} {
		remotely(t, func(t *testing.T, r *remote) {
			l, other := newLimiter(t, r, inflight.WithPolicy(policy)), newLimiter(t, r)
			h := acquire(t, l, "k", exports, 1)
			acquire(t, l, "quiet", exports, 1) // no place of it is granted by the policy
			r.be(away)
			for i := range 40 {
				time.Sleep(exports.Lease / 20)
				require.True(t, h.Valid())
				require.True(t, i < 6 || h.Degraded(), "since the first exchange that has failed")
			}
			require.NoError(t, h.Context().Err())
			require.True(t, h.Degraded())
			alone := acquire(t, l, "k", exports, 1)
			require.True(t, alone.Degraded())
			require.Zero(t, alone.Token())
			if policy == inflight.Share {
				denied(t, l, "k", exports, 1)
			}
			r.be(nil)
			time.Sleep(exports.Lease)
			require.EqualValues(t, 2, r.used("k"))
			require.True(t, h.Valid() && alone.Valid() && !h.Degraded())
			denied(t, other, "k", exports, 1)
			h.Release()
			alone.Release()
			synctest.Wait()
			require.Zero(t, r.used("k"))
			require.Equal(t, inflight.Stats{InUse: 1, Keys: 1}, l.Stats(), "nothing was lost, by the store or the process")
		})
	}
}

// A short outage with a loss of data is noticed as such by whoever held places before. One without is not, although
// the policy has granted places that the store does not know.
func TestALossDuringAnOutageIsNoticed(t *testing.T) {
	for policy, losses := range map[inflight.Policy]uint64{inflight.Refuse: 1, inflight.Share: 1, inflight.Admit: 0} {
		remotely(t, func(t *testing.T, r *remote) {
			l := newLimiter(t, r, inflight.WithPolicy(policy))
			h := acquire(t, l, "k", exports, 1)
			time.Sleep(exports.Lease / 5)
			r.be(away)
			if losses > 0 {
				r.losesItsData()
			} else {
				acquire(t, l, "k", exports, 1).Context()
			}
			time.Sleep(exports.Lease / 5)
			r.be(nil)
			time.Sleep(exports.Lease / 2)
			require.True(t, h.Valid())
			require.NoError(t, h.Context().Err())
			require.Equal(t, 2-losses, r.used("k"))
			require.Equal(t, losses, l.Stats().Losses)
			time.Sleep(exports.Lease)
			r.losesItsData()
			time.Sleep(exports.Lease)
			require.Equal(t, losses+1, l.Stats().Losses)
		})
	}
}
