package throttr_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// place is what a caller was granted.
type place struct {
	caller int
	throttr.Result
}

func TestWaitingCallersLearnOfWhatIsGivenBack(t *testing.T) {
	limit, wide := throttr.Limit{Max: 2, Scale: time.Hour}, throttr.Limit{Max: 1e6, Scale: time.Hour}
	for name, free := range map[string]func(ctx context.Context, l *throttr.RateLimit, rv *throttr.Reservation) error{
		"Cancel": func(ctx context.Context, _ *throttr.RateLimit, rv *throttr.Reservation) error { return rv.Cancel(ctx) },
		"Commit": func(ctx context.Context, _ *throttr.RateLimit, rv *throttr.Reservation) error {
			return rv.Commit(ctx, 1)
		},
		"Reset": func(ctx context.Context, l *throttr.RateLimit, _ *throttr.Reservation) error {
			return l.Reset(ctx, "k", time.Hour)
		},
		"Set": func(ctx context.Context, l *throttr.RateLimit, _ *throttr.Reservation) error {
			_, err := l.Set(ctx, "k", time.Hour, 0)
			return err
		},
		"Forget": func(ctx context.Context, l *throttr.RateLimit, _ *throttr.Reservation) error {
			return l.Forget(ctx, "k", throttr.Limit{Max: 7, Scale: time.Hour})
		},
		"Delete": func(ctx context.Context, l *throttr.RateLimit, _ *throttr.Reservation) error {
			_, err := l.Delete(ctx, "k")
			return err
		},
	} {
		for _, takes := range [][]throttr.Take{{limit.For("k", 1)}, {limit.For("k", 1), wide.For("wide", 1)}} {
			inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
				rv := reserve(t, limiter, limit.For("k", 2))
				begun := time.Now()
				waited := make(chan error)
				go func() { _, err := limiter.WaitAll(t.Context(), takes...); waited <- err }()
				synctest.Wait()
				require.NoError(t, free(t.Context(), limiter, rv))
				require.NoError(t, <-waited)
				require.Zero(t, time.Since(begun), "%s: %v", name, takes)
			})
		}
	}
}

// A take fits the count that a policy makes up, and yet the policy refuses it.
func TestWaitPausesWhileAPolicyDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newDistant(t)
		limiter := throttr.NewRateLimit(store, throttr.WithPolicy(throttr.DenyHits))
		store.be(func(context.Context, call) error {
			if store.asked.Load() > 1000 {
				return nil // so that a loop without a pause ends
			}
			return errDown
		})
		time.AfterFunc(10*time.Second, func() { store.be(nil) })
		limit := throttr.Limit{Max: 1 << 60, Scale: time.Minute}
		begun := time.Now()
		testkit.Together(t, 2, func(int) error {
			res, err := limiter.Wait(t.Context(), "k", limit, 1)
			if res.Degraded {
				t.Error(res)
			}
			return err
		})()
		require.InDelta(t, 10, time.Since(begun).Seconds(), 2)
		require.LessOrEqual(t, store.asked.Load(), int64(15))
		store.be(fails(errDown))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begun = time.Now()
		_, err := limiter.Wait(ctx, "k", limit, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 500*time.Millisecond, time.Since(begun), "when the backend works again is not known")
	})
}

// coarse is a backend that tells the ends of its windows in hours, rounded up.
type coarse struct {
	*memory.Backend
	late time.Duration
}

func (c *coarse) Check(throttr.Limit) (window.Traits, error) {
	return window.Traits{Precision: time.Hour}, nil
}

func (c *coarse) Take(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	w, err := c.Backend.Take(ctx, key, l, n)
	w.Left, w.ExpiresAt = w.Left+c.late, w.ExpiresAt.Add(c.late)
	if w.Refused {
		w.RetryAfter += c.late
	}
	return w, err
}

func TestWaitGivesUpOnlyIfItsTurnComesAfterTheDeadlineAtTheEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithClock(time.Now))
		defer b.Close()
		limiter := throttr.NewRateLimit(&coarse{b, 50 * time.Minute})
		const scale = 4 * time.Hour
		wait := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := limiter.Wait(ctx, "k", throttr.Limit{Max: 1, Scale: scale}, 1)
			return err
		}
		require.NoError(t, wait(time.Hour))
		end := time.Now().Add(scale)
		time.Sleep(scale - 10*time.Minute)
		// The backend says that an hour is left. It may be over now.
		require.NoError(t, wait(30*time.Minute))
		require.WithinDuration(t, end, time.Now(), 2*time.Second)

		begun := time.Now()
		err := wait(2 * time.Hour) // 4:50 are left by the backend, 3:50 at least
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, begun, time.Now())
		require.WithinDuration(t, begun.Add(3*time.Hour+50*time.Minute), late.At, 2*time.Second)
		require.NotContains(t, err.Error(), "m=")
	})
}

func TestCallersThatWaitForSeveralLimitsAreServedInOrder(t *testing.T) {
	inBubbles(t, func(t *testing.T, limiter *throttr.RateLimit) {
		const callers, scale, most = 200, 100 * time.Millisecond, 7
		type grant struct {
			caller int
			takes  []throttr.Take
			*throttr.Reservation
		}
		var mu sync.Mutex // guards granted
		var granted []grant
		var all sync.WaitGroup
		random := rand.New(rand.NewPCG(1, 2))
		for i := range callers {
			var takes []throttr.Take
			for _, k := range random.Perm(4)[:1+random.IntN(4)] { // in any order
				takes = append(takes, throttr.Limit{Max: most, Scale: scale}.For(string(rune('a'+k)), 1+random.Uint64N(most)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			if i%7 == 3 {
				time.AfterFunc(time.Duration(random.Int64N(int64(callers*scale))), cancel)
			}
			all.Go(func() {
				defer cancel()
				rv, err := limiter.WaitAll(ctx, takes...)
				if err != nil {
					if i%7 != 3 || !errors.Is(err, context.Canceled) {
						t.Error(i, err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				granted = append(granted, grant{i, takes, rv})
			})
			synctest.Wait()
		}
		all.Wait()
		require.Greater(t, len(granted), callers*6/7-1)
		for k := range 4 {
			key := string(rune('a' + k))
			var places []place
			counted := map[time.Time]uint64{}
			for _, g := range granted {
				for j, res := range g.Results() {
					if g.takes[j].Key == key {
						places = append(places, place{g.caller, res})
						counted[res.ResetAt] += g.takes[j].N
					}
				}
			}
			slices.SortFunc(places, func(a, b place) int {
				return cmp.Or(a.ResetAt.Compare(b.ResetAt), cmp.Compare(a.Count, b.Count))
			})
			require.True(t, slices.IsSortedFunc(places, func(a, b place) int { return cmp.Compare(a.caller, b.caller) }), key)
			for i, p := range places {
				if i == len(places)-1 || !places[i+1].ResetAt.Equal(p.ResetAt) {
					require.Equal(t, counted[p.ResetAt], p.Count, "a window counts what was granted")
				}
				require.LessOrEqual(t, p.Count, uint64(most))
			}
		}
	})
}

// The take that can't be granted in time, or never, is named; the other is not counted.
func TestWaitAllFailsAtOnceBecauseOfOneLimit(t *testing.T) {
	var seen recorder
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		requests := throttr.Limit{Name: "requests", Max: 10, Scale: time.Second}
		tokens := throttr.Limit{Name: "tokens", Max: 100, Scale: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		rv, err := limiter.WaitAll(ctx, requests.For("k", 1), tokens.For("k", 60), tokens.For("k", 60))
		var cost *throttr.CostError
		require.ErrorAs(t, err, &cost)
		require.Equal(t, "tokens", cost.Limit.Name)
		require.EqualValues(t, 120, cost.N)
		require.Nil(t, rv)
		require.NoError(t, rv.Cancel(ctx))
		require.Len(t, seen.events, 2, "one of each take of tokens")
		require.Equal(t, throttr.EventDenied, seen.events[1].Kind)

		rv, err = limiter.WaitAll(ctx, requests.For("k", 1), tokens.For("k", 60))
		require.NoError(t, err)
		seen.events = nil
		_, err = limiter.WaitAll(ctx, requests.For("k", 1), tokens.For("k", 50))
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, "tokens", late.Limit.Name)
		require.Equal(t, time.Now().Add(time.Minute).Round(0), late.At)
		e := seen.last(t)
		require.Equal(t, "tokens", e.Limit.Name)
		require.Equal(t, throttr.EventDenied, e.Kind)
		require.Equal(t, err, e.Err)
		require.Equal(t, time.Minute, e.Result.RetryAfter)
		res := decided(t)(limiter.Peek(ctx, "k", requests, 0))
		require.EqualValues(t, 1, res.Count)

		require.NoError(t, rv.Commit(ctx, 1, 50))
		begun := time.Now()
		_, err = limiter.WaitAll(ctx, requests.For("k", 1), tokens.For("k", 50))
		require.NoError(t, err)
		require.Zero(t, time.Since(begun), "what was not used is there at once")
		window := throttr.Limit{Name: "window", Max: 1, Scale: 500 * time.Millisecond}
		for range 2 {
			_, err = limiter.WaitAll(ctx, oneASecond.For("k", 1), window.For("k", 1))
			require.NoError(t, err)
		}
		require.InDelta(t, 0.5, time.Since(begun).Seconds(), 0.1, "what a bucket would grant is not waited for")
		rv, err = limiter.WaitAll(ctx)
		require.NoError(t, err)
		require.NoError(t, rv.Commit(ctx))
		_, err = limiter.WaitAll(ctx, requests.For("k", 0))
		require.ErrorIs(t, err, throttr.ErrRange)
	}, throttr.WithObserver(seen.observe))
}

// The event of a wait that fails at once says the time of its error, by the wall clock alone. In a bubble, all times are
// by that.
func TestTheDenialOfALateWaitSaysItsTurn(t *testing.T) {
	var seen recorder
	limiter := throttr.NewRateLimit(memory.New(), throttr.WithObserver(seen.observe))
	limit := throttr.Limit{Max: 1, Scale: time.Hour}
	decided(t)(limiter.Wait(t.Context(), "k", limit, 1))
	seen.last(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := limiter.Wait(ctx, "k", limit, 1)
	var late *throttr.DeadlineError
	require.ErrorAs(t, err, &late)
	require.Equal(t, late.At, seen.last(t).Result.ResetAt)
}

// Of a queue that is full, nothing is left in the other ones.
func TestWaitAllIsBoundedInEachOfItsQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		limit := throttr.Limit{Max: 1, Scale: time.Hour}
		allDecided(t)(limiter.TakeAll(t.Context(), limit.For("a", 1), limit.For("b", 1)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := testkit.Together(t, 2, func(int) error {
			if _, err := limiter.Wait(ctx, "b", limit, 1); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("a wait for b: %w", err)
			}
			return nil
		})
		synctest.Wait()
		_, err := limiter.WaitAll(ctx, limit.For("a", 1), limit.For("b", 1))
		require.ErrorIs(t, err, throttr.ErrOverloaded)
		require.NoError(t, limiter.Forget(ctx, "a", limit))
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		decided(t)(limiter.Wait(short, "a", limit, 1)) // nobody waits for a
		cancel()
		ended()
	}, throttr.WithMaxWaiters(2))
}

// takesBy is a backend whose takes are made by a function.
type takesBy struct {
	throttr.Backend
	take func(l throttr.Limit) (window.Window, error)
}

func (b takesBy) Take(_ context.Context, _ string, l throttr.Limit, _ uint64) (window.Window, error) {
	return b.take(l)
}

// What a fallback has refused leaves nothing behind: the store is then asked for the whole limit, and what a policy
// grants is given back to nobody.
func TestAWaitGoesOnAfterItsFallbackHasRefused(t *testing.T) {
	for _, back := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			asked := map[string]int{}
			store := takesBy{inProcess(t), func(l throttr.Limit) (w window.Window, err error) {
				if asked["store"]++; asked["store"] == 1 || !back {
					return w, throttr.ErrUnavailable
				}
				require.EqualValues(t, 40, l.Max)
				return window.Window{Count: 1, Left: time.Minute, ID: 1}, nil
			}}
			fallback := takesBy{inProcess(t), func(l throttr.Limit) (w window.Window, err error) {
				require.EqualValues(t, 10, l.Max)
				if asked["fallback"]++; asked["fallback"] > 1 {
					return w, throttr.ErrFull
				}
				return window.Window{Count: 10, Left: time.Second, ID: 1, Refused: true}, nil
			}}
			var seen recorder
			limiter := throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithProcesses(4),
				throttr.WithPolicy(throttr.AllowHits), throttr.WithObserver(seen.observe))
			rv, err := limiter.WaitAll(t.Context(), throttr.Limit{Max: 40, Scale: time.Minute}.For("k", 1))
			require.NoError(t, err)
			require.Equal(t, !back, rv.Results()[0].Degraded)
			require.Equal(t, back, seen.last(t).Err == nil)
			require.NoError(t, rv.Cancel(t.Context()))
		})
	}
}

// caller waits for n, from a time on. Times are since all places were taken.
type caller struct {
	at       time.Duration
	n        uint64
	patience time.Duration // until its deadline; 0: none
	leaves   time.Duration // when its ctx is canceled; 0: never
	turn     time.Duration // when its wait ends; if that would exceed the deadline, when its turn would be
	err      error         // nil: it is granted
}

// Each scenario is callers that wait for one limit, of which some is taken already.
var waits = []struct {
	why      string
	limit    throttr.Limit
	taken    uint64
	lag      time.Duration // for which the answers of the store are on their way
	reset    time.Duration // when the window is reset, or 0
	byOthers bool          // whom this limiter can't notice
	callers  []caller
}{
	{why: "a wait in vain fails at once, and takes nothing: with others in the line, its end is two windows later",
		limit: throttr.Limit{Max: 2, Scale: time.Minute}, taken: 2, callers: []caller{
			{at: 0, n: 1, patience: time.Second, turn: time.Minute, err: context.DeadlineExceeded},
			{at: 1, n: 1, turn: time.Minute}, {at: 2, n: 1, turn: time.Minute},
			{at: 3, n: 1, turn: 2 * time.Minute}, {at: 4, n: 1, turn: 2 * time.Minute},
			{at: 5, n: 1, patience: 2*time.Minute - time.Second, turn: 3 * time.Minute, err: context.DeadlineExceeded},
			{at: 6, n: 1, patience: 3*time.Minute - time.Second, turn: 3 * time.Minute, err: context.DeadlineExceeded},
			{at: 7, n: 1, patience: 4 * time.Minute, turn: 3 * time.Minute},
		}},
	{why: "a wait ends with its context", limit: throttr.Limit{Max: 1, Scale: time.Minute}, taken: 1, callers: []caller{
		{at: 0, n: 1, leaves: 10 * time.Second, turn: 10 * time.Second, err: context.Canceled},
		{at: 20 * time.Second, n: 1, turn: time.Minute},
	}},
	{why: "what is known from a refusal of a caller that has left does not count for those behind",
		limit: oneASecond, taken: 10, callers: []caller{
			{at: 0, n: 10, leaves: 200 * time.Millisecond, turn: 200 * time.Millisecond, err: context.Canceled},
			{at: 100 * time.Millisecond, n: 1, turn: time.Second},
			{at: 300 * time.Millisecond, n: 1, patience: 5 * time.Second, turn: 2 * time.Second},
		}},
	{why: "who fits into what is left of a window does not wait for its end, or for the next time to ask",
		limit: throttr.Limit{Max: 2, Scale: time.Hour}, taken: 1, callers: []caller{
			{at: 0, n: 2, leaves: 200 * time.Millisecond, turn: 200 * time.Millisecond, err: context.Canceled},
			{at: 10 * time.Millisecond, n: 1, turn: 200 * time.Millisecond},
		}},
	{why: "when callers behind the first one are granted is not known with a rolling algorithm: none fails before",
		limit: oneASecond, taken: 10, callers: []caller{
			{at: 0, n: 6, turn: 6 * time.Second}, {at: 1, n: 6, patience: 13 * time.Second, turn: 12 * time.Second},
		}},
	{why: "what is known of a window counts also when the caller has left that was refused",
		limit: throttr.Limit{Max: 10, Scale: time.Hour}, taken: 10, lag: 100 * time.Millisecond, callers: []caller{
			{at: 0, n: 6, leaves: 200 * time.Millisecond, turn: 200 * time.Millisecond, err: context.Canceled},
			{at: 1, n: 1, leaves: 400 * time.Millisecond, turn: 400 * time.Millisecond, err: context.Canceled},
			{at: 250 * time.Millisecond, n: 1, patience: time.Second, turn: time.Hour, err: context.DeadlineExceeded},
		}},
	{why: "an answer that was on its way while the window was reset is not believed",
		limit: throttr.Limit{Max: 1, Scale: time.Hour}, taken: 1, lag: 100 * time.Millisecond, reset: 50 * time.Millisecond,
		callers: []caller{{at: 0, n: 1, turn: 200 * time.Millisecond}}},
	{why: "a caller whose deadline passes while it asks is not removed by those behind it: it may be granted",
		limit: throttr.Limit{Max: 10, Scale: time.Hour}, lag: 100 * time.Millisecond, callers: []caller{
			{at: 0, n: 1, turn: 100 * time.Millisecond},
			{at: 1, n: 1, patience: 150 * time.Millisecond, turn: 200 * time.Millisecond},
			{at: 160 * time.Millisecond, n: 1, turn: 300 * time.Millisecond},
		}},
	{why: "a window may end sooner than an answer says, by the time in which it came", limit: throttr.Limit{Max: 1, Scale: time.Minute},
		taken: 1, lag: 100 * time.Millisecond, callers: []caller{
			{at: 0, n: 1, patience: 60_050 * time.Millisecond, turn: 60_050 * time.Millisecond, err: context.DeadlineExceeded},
		}},
	{why: "the first one asks every tenth of the scale", limit: throttr.Limit{Max: 1, Scale: time.Second}, taken: 1,
		reset: 10 * time.Millisecond, byOthers: true, callers: []caller{{at: 0, n: 1, turn: 100 * time.Millisecond}}},
	{why: "and at least every second", limit: throttr.Limit{Max: 1, Scale: time.Hour}, taken: 1,
		reset: 36500 * time.Millisecond, byOthers: true, callers: []caller{{at: 0, n: 1, turn: 37 * time.Second}}},
	{why: "the weight of a window that is over falls", taken: 10,
		limit:   throttr.Limit{Max: 10, Scale: 10 * time.Second, Algorithm: throttr.SlidingWindow},
		callers: []caller{{at: 0, n: 1, turn: 11 * time.Second}, {at: 1, n: 2, turn: 13 * time.Second}}},
	{why: "a log forgets all at one time", taken: 10,
		limit:   throttr.Limit{Max: 10, Scale: 10 * time.Second, Algorithm: throttr.SlidingLog},
		callers: []caller{{at: 0, n: 1, turn: 10 * time.Second}, {at: 1, n: 2, turn: 10 * time.Second}}},
}

// oneASecond is a limit whose bucket holds 10.
var oneASecond = throttr.Limit{Max: 10, Scale: 10 * time.Second, Algorithm: throttr.TokenBucket}

func TestWaitingCallersHaveTheirTurns(t *testing.T) {
	for _, c := range waits {
		testkit.Bubble(t, c.why, func(t *testing.T) {
			store := newDistant(t)
			limiter := throttr.NewRateLimit(store)
			if c.taken > 0 {
				decided(t)(limiter.Take(t.Context(), "k", c.limit, c.taken))
			}
			store.answer(func(_ context.Context, made call) error {
				if made.name == "take" {
					time.Sleep(c.lag)
				}
				return nil
			})
			begun := time.Now()
			by := limiter
			if c.byOthers {
				by = throttr.NewRateLimit(store)
			}
			if c.reset > 0 {
				time.AfterFunc(c.reset, func() { require.NoError(t, by.Forget(t.Context(), "k", c.limit)) })
			}
			var all sync.WaitGroup
			for _, w := range c.callers {
				all.Go(func() { w.wait(t, limiter, c.limit, begun) })
			}
			all.Wait()
		})
	}
}

// wait waits, and compares when and how the wait ends.
func (w *caller) wait(t *testing.T, limiter *throttr.RateLimit, limit throttr.Limit, begun time.Time) {
	time.Sleep(w.at)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if w.patience > 0 {
		ctx, cancel = context.WithTimeout(ctx, w.patience)
		defer cancel()
	}
	if w.leaves > 0 {
		time.AfterFunc(w.leaves-w.at, cancel)
	}
	_, err := limiter.Wait(ctx, "k", limit, w.n)
	if !errors.Is(err, w.err) {
		t.Errorf("%+v: %v", w, err)
	}
	turn := time.Since(begun)
	var late *throttr.DeadlineError
	if errors.As(err, &late) {
		if turn != w.at || late.Key != "k" || late.Limit.Scale != limit.Scale {
			t.Errorf("%+v: after %v: %+v", w, turn, late)
		}
		turn = late.At.Sub(begun)
	}
	if turn < w.turn || turn > w.turn+50*time.Millisecond {
		t.Errorf("%+v: its turn is at %v", w, turn)
	}
}
