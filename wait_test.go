package throttr_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// line is callers that wait, one after the other.
type line struct {
	t       *testing.T
	limiter *throttr.RateLimit
	scale   time.Duration
	limit   uint64
	all     sync.WaitGroup

	mu      sync.Mutex // guards granted
	granted []place
}

// place is what a caller was granted.
type place struct {
	caller int
	throttr.Result
}

// order returns the callers in the order of their places in the windows.
func (l *line) order() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.granted, func(a, b place) int {
		return cmp.Or(a.ResetAt.Compare(b.ResetAt), cmp.Compare(a.Count, b.Count))
	})
	callers := make([]int, len(l.granted))
	for i, p := range l.granted {
		callers[i] = p.caller
	}
	return callers
}

// join makes a caller wait behind the others. Every other one waits for two limits.
func (l *line) join(ctx context.Context, i int, n uint64) {
	l.all.Go(func() {
		res, err := l.wait(ctx, throttr.Limit{Max: l.limit, Scale: l.scale}.For("k", n), i%2 == 1)
		if err != nil {
			if ctx.Err() == nil {
				l.t.Errorf("caller %d: %v", i, err)
			}
			return
		}
		if !res.Allowed || res.Count > l.limit {
			l.t.Errorf("caller %d gets %+v", i, res)
		}
		l.mu.Lock()
		l.granted = append(l.granted, place{i, res})
		l.mu.Unlock()
	})
	synctest.Wait()
}

// wait waits for a take, and together with one of a limit that has room for all.
func (l *line) wait(ctx context.Context, take throttr.Take, together bool) (throttr.Result, error) {
	if !together {
		return l.limiter.Wait(ctx, take.Key, take.Limit, take.N)
	}
	rv, err := l.limiter.WaitAll(ctx, throttr.Limit{Max: 1e6, Scale: l.scale}.For("wide", 1), take)
	if err != nil {
		return throttr.Result{}, err
	}
	return rv.Results()[1], nil
}

func TestWaitingCallersAreServedInOrder(t *testing.T) {
	inBubbles(t, func(t *testing.T, limiter *throttr.RateLimit) {
		const callers, limit, scale = 400, 50, 400 * time.Millisecond
		l := &line{t: t, limiter: limiter, scale: scale, limit: limit}
		begun := time.Now()
		for i := range callers {
			l.join(t.Context(), i, 1)
		}
		l.all.Wait()
		require.Len(t, l.granted, callers)
		require.IsIncreasing(t, l.order())
		best := (callers/limit - 1) * scale
		took := time.Since(begun)
		t.Logf("%v, best possible %v", took, best)
		require.GreaterOrEqual(t, took, best)
		require.LessOrEqual(t, took, best+scale)
	})
}

func TestWaitFailsAtOnceIfTheDeadlineIsTooEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		const scale = time.Minute
		begun := time.Now()
		wait := func(timeout time.Duration, n uint64) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := limiter.Wait(ctx, "k", throttr.Limit{Max: 2, Scale: scale}, n)
			return err
		}
		require.NoError(t, wait(time.Second, 2))
		var late *throttr.DeadlineError
		require.ErrorAs(t, wait(time.Second, 1), &late)
		require.Equal(t, "k", late.Key)
		require.Equal(t, scale, late.Limit.Scale)
		require.Equal(t, begun.Add(scale), late.At)
		require.ErrorIs(t, late, context.DeadlineExceeded)

		// With others in the line, its end is two windows later.
		l := &line{t: t, limiter: limiter, scale: scale, limit: 2}
		for i := range 4 {
			l.join(t.Context(), i, 1)
		}
		require.ErrorAs(t, wait(2*scale-time.Second, 1), &late)
		require.ErrorAs(t, wait(3*scale-time.Second, 1), &late)
		require.Equal(t, begun.Add(3*scale), late.At)
		require.Zero(t, time.Since(begun), "it took time")
		n, err := limiter.Get(t.Context(), "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, 2, n, "what fails takes nothing")
		require.NoError(t, wait(4*scale, 1))
		l.all.Wait()
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		_, err := limiter.Take(t.Context(), "k", throttr.Limit{Max: 1, Scale: time.Minute}, 1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		time.AfterFunc(10*time.Second, cancel)
		_, err = limiter.Wait(ctx, "k", throttr.Limit{Max: 1, Scale: time.Minute}, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 10*time.Second, time.Since(begun))
		_, err = limiter.Wait(ctx, "other", throttr.Limit{Max: 1, Scale: time.Minute}, 1)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestWaitingCallersLearnOfWhatIsGivenBack(t *testing.T) {
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
		for i, waits := range []string{"Wait", "WaitAll"} {
			inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
				rv := reserve(t, limiter, throttr.Limit{Max: 2, Scale: time.Hour}.For("k", 2))
				l := &line{t: t, limiter: limiter, scale: time.Hour, limit: 2}
				begun := time.Now()
				l.join(t.Context(), i, 1)
				require.NoError(t, free(t.Context(), limiter, rv))
				l.all.Wait()
				require.Zero(t, time.Since(begun), "%s/%s", name, waits)
			})
		}
	}
}

// Somebody else, whom this limiter can't notice, resets the window.
func TestWaitingCallersAskInBetween(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *throttr.RateLimit) {
		backend := memory.New(memory.WithClock(time.Now))
		defer backend.Close()
		limiter, other := throttr.NewRateLimit(backend), throttr.NewRateLimit(backend)
		for _, scale := range []time.Duration{time.Second, time.Hour} {
			_, err := limiter.Take(t.Context(), "k", throttr.Limit{Max: 1, Scale: scale}, 1)
			require.NoError(t, err)
			l := &line{t: t, limiter: limiter, scale: scale, limit: 1}
			l.join(t.Context(), 0, 1)
			time.Sleep(scale / 100)
			require.NoError(t, other.Reset(t.Context(), "k", scale))
			begun := time.Now()
			l.all.Wait()
			require.LessOrEqual(t, time.Since(begun), min(scale/10, time.Second))
		}
	})
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
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				res, err := limiter.Wait(t.Context(), "k", limit, 1)
				if err != nil || res.Degraded {
					t.Error(res, err)
				}
			})
		}
		all.Wait()
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
		seen.events, seen.ctxs = nil, nil
		_, err = limiter.WaitAll(ctx, requests.For("k", 1), tokens.For("k", 50))
		var late *throttr.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, "tokens", late.Limit.Name)
		require.Equal(t, time.Now().Add(time.Minute).Round(0), late.At)
		e := seen.last(t)
		require.Equal(t, "tokens", e.Limit.Name)
		require.Equal(t, throttr.EventDenied, e.Kind)
		require.Equal(t, time.Minute, e.Result.RetryAfter)
		res, err := limiter.Peek(ctx, "k", requests, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, res.Count)

		require.NoError(t, rv.Commit(ctx, 1, 50))
		begun := time.Now()
		_, err = limiter.WaitAll(ctx, requests.For("k", 1), tokens.For("k", 50))
		require.NoError(t, err)
		require.Zero(t, time.Since(begun), "what was not used is there at once")
		rv, err = limiter.WaitAll(ctx)
		require.NoError(t, err)
		require.NoError(t, rv.Commit(ctx))
		_, err = limiter.WaitAll(ctx, requests.For("k", 0))
		require.ErrorIs(t, err, throttr.ErrRange)
	}, throttr.WithObserver(seen.observe))
}

// Of a queue that is full, nothing is left in the other ones.
func TestWaitAllIsBoundedInEachOfItsQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		limit := throttr.Limit{Max: 1, Scale: time.Hour}
		_, _, err := limiter.TakeAll(t.Context(), limit.For("a", 1), limit.For("b", 1))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := limiter.Wait(ctx, "b", limit, 1); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		_, err = limiter.WaitAll(ctx, limit.For("a", 1), limit.For("b", 1))
		require.ErrorIs(t, err, throttr.ErrOverloaded)
		require.NoError(t, limiter.Forget(ctx, "a", limit))
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, err = limiter.Wait(short, "a", limit, 1)
		require.NoError(t, err, "nobody waits for a")
		cancel()
		all.Wait()
	}, throttr.WithMaxWaiters(2))
}

// What is known of a window from a refusal of a caller that has left does not count for those behind.
func TestWaitBehindACallerThatHasLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		limit := throttr.Limit{Max: 10, Scale: 10 * time.Second, Algorithm: throttr.TokenBucket} // one a second
		_, err := limiter.Take(t.Context(), "k", limit, 10)
		require.NoError(t, err)
		begun := time.Now()
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		wait := func(ctx context.Context, n uint64, granted time.Duration) {
			all.Go(func() {
				_, err := limiter.Wait(ctx, "k", limit, n)
				if granted == 0 {
					require.ErrorIs(t, err, context.Canceled)
					return
				}
				require.NoError(t, err)
				require.InDelta(t, granted, time.Since(begun), float64(50*time.Millisecond))
			})
			time.Sleep(100 * time.Millisecond)
		}
		wait(first, 10, 0)
		wait(t.Context(), 1, time.Second)
		leave()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		wait(ctx, 1, 2*time.Second)
		all.Wait()
	})
}

// Who fits into what is left of a window does not wait for its end, or for the next time to ask.
func TestWaitForTheLastPlaceBehindACallerThatHasLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		limit := throttr.Limit{Max: 2, Scale: time.Hour}
		_, err := limiter.Take(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		first, leave := context.WithCancel(t.Context())
		go limiter.Wait(first, "k", limit, 2)
		time.Sleep(10 * time.Millisecond)
		time.AfterFunc(10*time.Millisecond, leave)
		begun := time.Now()
		_, err = limiter.Wait(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		require.Equal(t, 10*time.Millisecond, time.Since(begun))
	})
}

// When the callers behind the first one are granted is not known with a rolling algorithm, so none fails because of its
// deadline before.
func TestRollingWaitsBehindOthersDoNotFailEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
		limit := throttr.Limit{Max: 10, Scale: 10 * time.Second, Algorithm: throttr.TokenBucket} // one a second
		_, err := limiter.Take(t.Context(), "k", limit, 10)
		require.NoError(t, err)
		begun := time.Now()
		go limiter.Wait(t.Context(), "k", limit, 6)
		time.Sleep(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 13*time.Second)
		defer cancel()
		_, err = limiter.Wait(ctx, "k", limit, 6)
		require.NoError(t, err)
		require.InDelta(t, 12*time.Second, time.Since(begun), float64(100*time.Millisecond))
	})
}

// lateStore returns a store whose answers to takes take 100 ms.
func lateStore(t *testing.T) *distant {
	store := newDistant(t)
	store.answer(func(_ context.Context, c call) error {
		if c.name == "take" {
			time.Sleep(100 * time.Millisecond)
		}
		return nil
	})
	return store
}

// An answer that was on its way while somebody reset the window is not believed.
func TestWaitAsksAgainAfterAResetDuringItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := throttr.NewRateLimit(lateStore(t))
		limit := throttr.Limit{Max: 1, Scale: time.Hour}
		_, err := limiter.Take(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		begun := time.Now()
		time.AfterFunc(50*time.Millisecond, func() { require.NoError(t, limiter.Reset(t.Context(), "k", time.Hour)) })
		_, err = limiter.Wait(t.Context(), "k", limit, 1)
		require.NoError(t, err)
		require.Equal(t, 200*time.Millisecond, time.Since(begun))
	})
}

// A caller whose deadline passes while it asks is not removed by those that join behind it: it may be granted.
func TestACallerThatAsksIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := throttr.NewRateLimit(lateStore(t))
		limit := throttr.Limit{Max: 10, Scale: time.Hour}
		var all sync.WaitGroup
		wait := func(ctx context.Context) {
			all.Go(func() {
				_, err := limiter.Wait(ctx, "k", limit, 1)
				require.NoError(t, err)
			})
		}
		wait(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		synctest.Wait()
		wait(ctx) // asks from 100 to 200 ms
		time.Sleep(160 * time.Millisecond)
		wait(t.Context())
		all.Wait()
	})
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
			limiter := throttr.NewRateLimit(store, throttr.WithFallback(fallback), throttr.WithProcesses(4), throttr.WithPolicy(throttr.AllowHits))
			rv, err := limiter.WaitAll(t.Context(), throttr.Limit{Max: 40, Scale: time.Minute}.For("k", 1))
			require.NoError(t, err)
			require.Equal(t, !back, rv.Results()[0].Degraded)
			require.NoError(t, rv.Cancel(t.Context()))
		})
	}
}
