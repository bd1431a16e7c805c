package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

func TestPlacesAreLostAfterThreeQuartersOfALease(t *testing.T) {
	for offset := range 10 {
		remotely(t, func(t *testing.T, r *remote) {
			l := newLimiter(t, r)
			h := acquire(t, l, "k", exports, 2)
			ctx := h.Context()
			time.Sleep(exports.Lease * time.Duration(offset) / 10)
			r.be(away)
			begun, held := time.Now(), time.Duration(0)
			context.AfterFunc(ctx, func() { held = time.Since(begun) })
			time.Sleep(exports.Lease)
			synctest.Wait()
			require.ErrorIs(t, context.Cause(ctx), inflight.ErrLost)
			require.False(t, h.Valid())
			require.GreaterOrEqual(t, held, exports.Lease*3/4)
			require.Less(t, held, exports.Lease)
			require.EqualValues(t, 2, l.Stats().Lost)
			require.Zero(t, l.Stats().InUse)
			r.be(nil)
			time.Sleep(exports.Lease)
			acquire(t, l, "k", exports, 2)
			require.False(t, h.Valid())
			h.Release()
			synctest.Wait()
			denied(t, l, "k", exports, 1)
		})
	}
}

func TestWhileTheStoreIsAwayThePolicyDecides(t *testing.T) {
	four := inflight.Limit{Max: 8, Lease: 4 * time.Second}
	remotely(t, func(t *testing.T, r *remote) {
		var told, decided told
		refuse := newLimiter(t, r, told.options()...)
		shares := newLimiter(t, r, decided.options(inflight.WithPolicy(inflight.Share), inflight.WithProcesses(2))...)
		admit := newLimiter(t, r, inflight.WithPolicy(inflight.Admit))
		h, s := acquire(t, refuse, "k", four, 1), acquire(t, shares, "k", four, 1)
		waiting := waits(t.Context(), refuse, "k", four, 8)
		r.be(away)
		for range 100 {
			fails(t, refuse, "x", four, throttr.ErrUnavailable)
		}
		require.ErrorIs(t, <-waiting, throttr.ErrUnavailable)
		_, err := refuse.Peek(t.Context(), "k", four)
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.Less(t, r.calls.Load(), int64(20), "the breaker is open")
		require.True(t, h.Valid() && s.Valid())

		ctx, cancel := context.WithCancel(t.Context())
		waits(ctx, shares, "k", four, 4)
		denied(t, shares, "k", inflight.Limit{Max: 6, Lease: four.Lease}, 1) // there is room, but another waits
		cancel()
		synctest.Wait()

		unlimited := four
		unlimited.Max = throttr.Unlimited
		acquire(t, shares, "k", unlimited, 9)     // which counts nowhere
		third := acquire(t, shares, "k", four, 3) // its share is 4, and it holds 1
		require.True(t, third.Degraded())
		denied(t, shares, "k", four, 1)
		time.AfterFunc(2500*time.Millisecond, third.Release)
		start := time.Now()
		again, err := shares.Acquire(t.Context(), "k", four, 3)
		require.NoError(t, err)
		require.Equal(t, 2500*time.Millisecond, time.Since(start))
		require.True(t, again.Degraded())
		for range 20 {
			require.True(t, acquire(t, admit, "k", four, 1).Degraded())
		}

		waiting = waits(t.Context(), shares, "other", four, 8) // the share does not suffice; the store does
		r.be(nil)
		require.NoError(t, <-waiting)
		time.Sleep(time.Second) // each finds out for itself
		_, _, err = refuse.TryAcquire(t.Context(), "k", four, 1)
		require.NoError(t, err)
		lines := told.lines.String()
		require.Equal(t, 2, strings.Count(lines, "\n"), lines)
		require.Contains(t, lines, `level=WARN msg="throttr: the store is away" store=memory `+
			`error="throttr: the store is unavailable: connection refused" instead="leave it to the caller"`)
		require.Regexp(t, `level=WARN msg="throttr: the store is back" .* degraded=0 denied=0 failed=[1-9]`, lines)
		require.Contains(t, decided.lines.String(), "degraded=4 denied=2 failed=0")
		kinds := told.kinds()
		require.Less(t, slices.Index(kinds, inflight.Unavailable), slices.Index(kinds, inflight.Available))
	})
}

// While the breaker is open, Close asks the store for nothing but a trial. Before, it tries until the breaker opens.
func TestCloseDoesNotWaitForAStoreThatIsAway(t *testing.T) {
	type outage struct {
		be    func(context.Context, []window.Claim) error
		open  bool
		took  time.Duration
		calls int64
	}
	cases(t, map[string]outage{
		"the breaker is open":     {away, true, 0, 1},
		"the store fails":         {away, false, 100 * time.Millisecond, 20},
		"the store hangs":         {hangs, false, 300 * time.Millisecond, 20},
		"it hangs, and that open": {hangs, true, 100 * time.Millisecond, 2},
	}, func(t *testing.T, r *remote, o outage) {
		l := newLimiter(t, r, inflight.WithTimeout(50*time.Millisecond))
		for i := range 300 { // more than share an exchange
			acquire(t, l, fmt.Sprint(i), exports, 1)
		}
		r.be(o.be)
		for i := 0; o.open && i < 3; i++ {
			fails(t, l, "x", exports, throttr.ErrUnavailable)
		}
		start, before := time.Now(), r.calls.Load()
		var first sync.WaitGroup
		first.Go(func() { l.Close() })
		synctest.Wait()
		require.NoError(t, l.Close())
		require.Zero(t, time.Since(start), "a second call tells the store nothing")
		first.Wait()
		require.LessOrEqual(t, time.Since(start), o.took, "three failures, and the pauses between them")
		require.LessOrEqual(t, r.calls.Load()-before, o.calls)
		require.Zero(t, l.Stats())
	})
}

// What goes wrong with some keys costs no places of others.
func TestSomeKeysCostNoPlacesOfOthers(t *testing.T) {
	type trouble struct {
		policy  inflight.Policy
		disturb func(ctx context.Context, r *remote, l *inflight.Limiter)
		lost    uint64
	}
	cases(t, map[string]trouble{
		// They were acquired when the parts were not known.
		"those of a part that hangs": {inflight.Refuse, func(_ context.Context, r *remote, _ *inflight.Limiter) {
			r.parts.Store(true)
			r.be(func(ctx context.Context, claims []window.Claim) error {
				if slices.ContainsFunc(claims, func(c window.Claim) bool { return c.Key[0] == 'a' }) {
					return hangs(ctx, claims)
				}
				return nil
			})
		}, 20},
		"those with a lease that is too short for the store": {inflight.Refuse, func(ctx context.Context, r *remote, l *inflight.Limiter) {
			r.be(func(ctx context.Context, claims []window.Claim) error {
				time.Sleep(20 * time.Millisecond)
				return ctx.Err()
			})
			for i := range 20 {
				go func() {
					for ctx.Err() == nil {
						l.Acquire(ctx, fmt.Sprint("short", i), inflight.Limit{Max: 1, Lease: 60 * time.Millisecond}, 1)
						time.Sleep(time.Millisecond)
					}
				}()
			}
		}, 0},
		"those of which the policy grants more than can be told": {inflight.Admit, func(ctx context.Context, r *remote, l *inflight.Limiter) {
			r.be(away)
			for range 3 {
				l.TryAcquire(ctx, "k", inflight.Limit{Max: window.MaxPlaces, Lease: exports.Lease}, window.MaxPlaces)
			}
			r.be(nil)
		}, 0},
	}, func(t *testing.T, r *remote, trouble trouble) {
		l := newLimiter(t, r, inflight.WithPolicy(trouble.policy))
		var holds []*inflight.Hold
		for i := range 20 {
			acquire(t, l, fmt.Sprint("a", i), exports, 1)
			holds = append(holds, acquire(t, l, fmt.Sprint("b", i), exports, 1))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		trouble.disturb(ctx, r, l)
		time.Sleep(5 * exports.Lease)
		for i, h := range holds {
			require.True(t, h.Valid() && !h.Degraded())
			require.EqualValues(t, 1, r.used(fmt.Sprint("b", i)))
		}
		require.Equal(t, trouble.lost, l.Stats().Lost)
		denied(t, l, "b0", exports, 2)
		cancel()
		r.be(nil)
		time.Sleep(time.Second) // no probe must be under way when the bubble ends
	})
}

// One key of a store can't be served, and others are, so that no circuit opens. A call for it that waits does not
// wait for ever: not at all if the store says that it can't, and otherwise a lease. If the process stood still, that is
// no outage: the policy does not apply to a call that does not wait.
func TestAKeyThatCannotBeServedKeepsNobodyWaiting(t *testing.T) {
	type failure struct {
		err   error
		after time.Duration
	}
	cases(t, map[string]failure{
		"the store says so":        {errors.New("WRONGTYPE Operation against a key"), 0},
		"the store is full":        {throttr.ErrFull, 0},
		"the store does not serve": {fmt.Errorf("%w: CLUSTERDOWN Hash slot not served", throttr.ErrUnavailable), exports.Lease},
	}, func(t *testing.T, r *remote, f failure) {
		r.bad = outage.ErrStill
		admit := newLimiter(t, r, inflight.WithPolicy(inflight.Admit))
		for range 5 {
			fails(t, admit, "bad", exports, outage.ErrStill)
		}
		require.False(t, acquire(t, admit, "good", exports, 1).Degraded())
		r.bad = f.err
		l := newLimiter(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), 10*exports.Lease)
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				acquire(t, l, "good", exports, 1).Release()
				time.Sleep(time.Millisecond)
			}
		}()
		time.Sleep(exports.Lease)
		begun := time.Now()
		require.ErrorIs(t, <-waits(ctx, l, "bad", exports, 1), f.err)
		require.GreaterOrEqual(t, time.Since(begun), f.after)
		require.LessOrEqual(t, time.Since(begun), f.after+exports.Lease/4)
		cancel()
		time.Sleep(time.Second)
	})
}

// What is given up when exchanges have failed for a lease is free as soon as the store can be told: it may have heard
// of the last one just now.
func TestWhatIsGivenUpAfterLongFailuresIsFree(t *testing.T) {
	limit := inflight.Limit{Name: exports.Name, Max: 1, Lease: 10 * time.Second}
	type end struct {
		policy inflight.Policy
		holds  func(t *testing.T, r *remote, l *inflight.Limiter)
	}
	cases(t, map[string]end{
		"a call is refused": {inflight.Refuse, func(t *testing.T, r *remote, l *inflight.Limiter) {
			r.deaf.Store(true)
			require.ErrorIs(t, <-waits(t.Context(), l, "k", limit, 1), context.DeadlineExceeded)
		}},
		"a place is released": {inflight.Share, func(t *testing.T, r *remote, l *inflight.Limiter) {
			h := acquire(t, l, "k", limit, 1)
			r.deaf.Store(true)
			time.Sleep(limit.Lease * 3 / 2)
			require.True(t, h.Valid() && h.Degraded())
			h.Release()
		}},
		"the limiter is closed": {inflight.Share, func(t *testing.T, r *remote, l *inflight.Limiter) {
			r.be(away)
			time.AfterFunc(15*time.Millisecond, func() { r.be(nil) })
			h, err := l.Acquire(t.Context(), "k", limit, 1)
			require.True(t, err == nil && !h.Degraded(), "a call that waits outlasts a failure")
			r.deaf.Store(true)
			time.Sleep(limit.Lease*3/2 - 50*time.Millisecond)
			time.AfterFunc(100*time.Millisecond, func() { r.deaf.Store(false) })
			require.NoError(t, l.Close())
			require.Zero(t, r.used("k"))
		}},
	}, func(t *testing.T, r *remote, e end) {
		l := newLimiter(t, r, inflight.WithPolicy(e.policy), inflight.WithBreaker(1<<20, 0)) // others are served
		e.holds(t, r, l)
		r.deaf.Store(false)
		begun := time.Now()
		require.NoError(t, <-waits(t.Context(), newLimiter(t, r), "k", limit, 1))
		require.Less(t, time.Since(begun), time.Second)
		time.Sleep(limit.Lease / 8) // l tells the store once more
		synctest.Wait()
		require.Zero(t, l.Stats().Keys)
	})
}

// A claim whose exchange has failed may reach the store after the process has told it that it wants nothing any more.
// The process tells it so once more: nobody holds what the claim has got. It does not if exchanges have failed for
// long, or when the Limiter is closed.
func TestAClaimThatIsLateHoldsNothing(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		var late window.Claim
		l := newLimiter(t, r, inflight.WithBreaker(1<<20, 0)) // each exchange asks
		try := func(limit inflight.Limit) {
			r.be(func(ctx context.Context, claims []window.Claim) error {
				late = claims[0]
				late.Wants = slices.Clone(late.Wants)
				return hangs(ctx, claims)
			})
			fails(t, l, "k", limit, window.ErrUnavailable)
			r.be(nil)
			r.calls.Store(0)
		}
		try(exports)
		time.Sleep(exports.Lease / 16)
		require.EqualValues(t, 1, r.calls.Load(), "the store was not told")
		r.claim(late)
		require.EqualValues(t, 1, r.used("k"))
		time.Sleep(exports.Lease / 8)
		require.Zero(t, r.used("k"), "a place is held by nobody")
		require.Zero(t, l.Stats())
		time.Sleep(exports.Lease)
		require.EqualValues(t, 2, r.calls.Load(), "the store is told on and on")

		long := inflight.Limit{Name: "long", Max: 1, Lease: time.Hour}
		try(long)
		r.be(hangs)
		time.Sleep(time.Minute)
		r.be(nil)
		time.Sleep(time.Second)
		require.Zero(t, l.Stats().Keys, "the store was told once")

		try(long)
		r.be(hangs)
		waiting := waits(t.Context(), l, "another", long, 1)
		r.be(nil)
		begun := time.Now()
		require.NoError(t, l.Close())
		require.Less(t, time.Since(begun), 300*time.Millisecond, "Close waits for more than the exchange in flight")
		require.ErrorIs(t, <-waiting, throttr.ErrClosed)
	})
}

// Unlimited places need no store: whether it is there or not, it is not told of them, and no key stays.
func TestUnlimitedPlacesNeedNoStore(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		limit := exports
		limit.Max = throttr.Unlimited
		l := newLimiter(t, r)
		acquire(t, l, "k", exports, 1) // of this it is told
		acquire(t, l, "k", limit, 1).Release()
		synctest.Wait()
		require.EqualValues(t, 1, r.calls.Swap(0))

		l = newLimiter(t, r, inflight.WithMaxKeys(10))
		r.be(away)
		for i := range 20 {
			h := acquire(t, l, fmt.Sprint(i), limit, 1)
			h.Release()
			h.Release()
		}
		require.Zero(t, l.Stats())
		acquire(t, l, "k", limit, 1)
		acquire(t, l, "other", limit, 1)
		require.Equal(t, inflight.Stats{InUse: 2, Keys: 2}, l.Stats())
		require.NoError(t, l.Close())
		require.Zero(t, r.calls.Load())
	})
}

// requireLosses is that so many losses of data were told, with a line and an event for each.
func (r *told) requireLosses(t *testing.T, l *inflight.Limiter, losses int, text string) {
	t.Helper()
	events := slices.DeleteFunc(r.kinds(), func(k inflight.Kind) bool { return k != inflight.DataLost })
	require.Len(t, events, losses)
	require.EqualValues(t, losses, l.Stats().Losses)
	require.Equal(t, losses, strings.Count(r.lines.String(), `level=WARN msg="throttr: the store `+text), r.lines.String())
}

// After a loss of data, places are granted at once. Processes tell what they hold with their next renewal, nobody's
// Hold ends, and nothing is granted until there is room. It does not matter whether the store was away meanwhile.
func TestAStoreThatHasLostItsDataGrantsAtOnce(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		const line = `has lost its data: more places in flight than Max may be held"`
		var told, others told
		one, two := newLimiter(t, r, told.options()...), newLimiter(t, r, others.options(inflight.WithPolicy(inflight.Share))...)
		h, quiet := acquire(t, one, "k", exports, 2), acquire(t, one, "quiet", exports, 2)
		denied(t, two, "k", exports, 1)
		told.requireLosses(t, one, 0, "has lost")
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
		again := acquire(t, two, "k", exports, 2)
		told.requireLosses(t, one, 1, line)
		require.Zero(t, one.Stats().Lost)
		others.requireLosses(t, two, 0, "has lost") // of what it holds

		time.Sleep(2 * exports.Lease)
		r.losesItsData()
		acquire(t, one, "another", exports, 1)
		synctest.Wait()
		require.EqualValues(t, 2, r.used("quiet"), "whoever hears from another data set tells it all at once")
		calls := r.calls.Load()
		acquire(t, one, "yet another", exports, 1)
		synctest.Wait()
		require.Equal(t, calls+1, r.calls.Load(), "and only once")
		time.Sleep(exports.Lease / 16)
		r.losesItsData()
		acquire(t, one, "a third", exports, 1)
		synctest.Wait()
		require.Zero(t, r.used("quiet"), "it is told again only after an eighth of a lease")
		time.Sleep(exports.Lease)
		told.requireLosses(t, one, 2, line)

		r.be(away)
		r.losesItsData()
		time.Sleep(exports.Lease / 4)
		r.be(nil)
		time.Sleep(exports.Lease / 2)
		require.True(t, quiet.Valid() && again.Valid() && !again.Degraded())
		require.EqualValues(t, 2, r.used("k"))
		told.requireLosses(t, one, 3, line)
		others.requireLosses(t, two, 2, line)

		r.parts.Store(true)
		calls = r.calls.Load()
		for _, key := range []string{"a", "b", "c"} {
			acquire(t, one, key, exports, 1)
			synctest.Wait()
		}
		require.Equal(t, calls+3, r.calls.Load(), "each part of a store has a data set of its own")
	})
}

// With WithStrict, nothing is granted for a lease after a loss of data: calls that do not wait are told for how long,
// and others wait. With Share, the policy decides meanwhile. What it has granted is not told: the store has no room for
// it.
func TestAStrictLimiterWaitsForALease(t *testing.T) {
	remotely(t, func(t *testing.T, r *remote) {
		const line = "is new, or has lost its data: no places in flight are granted yet"
		var told told
		one, two := newLimiter(t, r, told.options(inflight.WithStrict())...), newLimiter(t, r, inflight.WithStrict())
		shares := newLimiter(t, r, inflight.WithStrict(), inflight.WithPolicy(inflight.Share))
		first, kept := acquire(t, one, "k", exports, 1), acquire(t, shares, "shared", exports, 1)
		time.Sleep(exports.Lease / 100)
		r.losesItsData()
		apart := acquire(t, shares, "shared", exports, 1)
		require.True(t, apart.Degraded())
		denied(t, shares, "shared", exports, 1)
		synctest.Wait()
		require.EqualValues(t, 1, r.used("shared"))
		require.EqualValues(t, 2, shares.Stats().InUse)
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

		r.be(away)
		time.Sleep(2 * exports.Lease)
		require.ErrorIs(t, context.Cause(kept.Context()), inflight.ErrLost, "a policy keeps no place of a strict limiter")
		require.True(t, apart.Valid(), "what the policy has granted is its own")
		apart.Release()
		require.Zero(t, shares.Stats().InUse)
		acquire(t, shares, "shared", exports, 2)
	})
}

// While the store is away, Share and Admit keep what is held, however long that is. When it is back, it is told of that
// and of what the policy has granted, which is no loss of data.
func TestPoliciesKeepPlaces(t *testing.T) {
	for _, policy := range []inflight.Policy{inflight.Share, inflight.Admit} {
		remotely(t, func(t *testing.T, r *remote) {
			l, other := newLimiter(t, r, inflight.WithPolicy(policy)), newLimiter(t, r)
			h := acquire(t, l, "k", exports, 1)
			quiet := acquire(t, l, "quiet", exports, 1) // no place of it is granted by the policy
			r.be(away)
			for i := range 40 {
				time.Sleep(exports.Lease / 20)
				require.True(t, h.Valid())
				require.True(t, i < 6 || h.Degraded(), "since the first exchange that has failed")
			}
			require.NoError(t, h.Context().Err())
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
			quiet.Release()
			h.Release()
			synctest.Wait()
			require.EqualValues(t, 1, r.used("k"))
			r.be(away) // for less than a lease
			require.True(t, acquire(t, l, "k", exports, 1).Degraded())
			r.be(nil)
			time.Sleep(exports.Lease)
			require.EqualValues(t, 2, r.used("k"))
			require.Equal(t, inflight.Stats{InUse: 2, Keys: 1}, l.Stats(), "nothing was lost, by the store or the process")
			r.losesItsData()
			time.Sleep(exports.Lease)
			require.EqualValues(t, 1, l.Stats().Losses, "the store knew of what the policy has granted")
		})
	}
}
