package coalesce_test

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

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

var (
	errStore = errors.New("store failed")
)

// latency is how long a request to a fake takes.
const latency = time.Millisecond

// fake is a window in memory. Each of its requests takes latency.
type fake struct {
	mostSum uint64 // of a request; 0 means no limit
	noWait  bool   // requests take no time

	mu        sync.Mutex
	known     bool
	denying   bool // hits over the limit are denied from memory
	asking    bool // hits over the limit are denied by a Refresh that is newer
	count     uint64
	id        int64
	requests  []coalesce.SharedHits // given to Count
	ctxs      []context.Context     // likewise
	reads     int                   // calls of Refresh
	readErr   error                 // of the next Refresh
	outcomes  []coalesce.Outcome    // of the next calls of Count, instead of counting
	givenBack []uint64              // by each call of GiveBack
	busy      bool                  // a request or operation is under way
	overlaps  int                   // how often one began while another was under way
}

func (f *fake) Admit(b coalesce.SharedHits, h coalesce.Hit) (coalesce.Verdict, window.Window) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.known && !b.Fresh:
		return coalesce.Defer, window.Window{}
	case f.known && f.denying && f.count > h.Max:
		return coalesce.Decided, window.Window{Count: f.count, ID: f.id}
	case f.known && f.asking && f.count > h.Max:
		if !b.QueuedBefore {
			return coalesce.Defer, window.Window{}
		}
		return coalesce.Decided, window.Window{Count: f.count, ID: f.id}
	case f.mostSum > 0 && b.Hits > 0 && b.Sum+h.Increment > f.mostSum:
		return coalesce.Defer, window.Window{}
	}
	return coalesce.Share, window.Window{}
}

// begin notes that a request or operation begins, and end that it ends.
func (f *fake) begin() {
	f.mu.Lock()
	if f.busy {
		f.overlaps++
	}
	f.busy = true
	f.mu.Unlock()
}

func (f *fake) end() {
	f.mu.Lock()
	f.busy = false
	f.mu.Unlock()
}

// wait waits for a request's response.
func (f *fake) wait(ctx context.Context) error {
	if f.noWait {
		return nil
	}
	select {
	case <-time.After(latency):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) Refresh(ctx context.Context) error {
	f.begin()
	defer f.end()
	err := f.wait(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if err == nil {
		err, f.readErr = f.readErr, nil
	}
	return err
}

func (f *fake) Count(ctx context.Context, b coalesce.SharedHits) coalesce.Outcome {
	f.begin()
	defer f.end()
	if !f.noWait {
		f.mu.Lock()
		f.requests, f.ctxs = append(f.requests, b), append(f.ctxs, ctx)
		f.mu.Unlock()
	}
	if err := f.wait(ctx); err != nil {
		return coalesce.Outcome{Err: err, Sent: true}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.outcomes) > 0 {
		o := f.outcomes[0]
		f.outcomes = f.outcomes[1:]
		f.known = f.known && o.Err != nil
		return o
	}
	if !f.known {
		f.known, f.count = true, 0
		f.id++
	}
	f.count += b.Sum
	return coalesce.Outcome{WindowOpen: true, Window: window.Window{Count: f.count, ID: f.id}}
}

func (f *fake) Subtract(uint64) {}

func (f *fake) GiveBack(ctx context.Context, n uint64) {
	f.begin()
	defer f.end()
	if f.wait(ctx) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count -= n
	f.givenBack = append(f.givenBack, n)
}

// set is an operation that opens a window with a count.
func (f *fake) set(count uint64) coalesce.Operation {
	return func(ctx context.Context) (window.Window, bool, error) {
		f.begin()
		defer f.end()
		if err := f.wait(ctx); err != nil {
			return window.Window{}, true, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.known, f.count = true, count
		f.id++
		return window.Window{Count: count, ID: f.id}, true, nil
	}
}

// subject is a coalescer of a fake.
type subject struct {
	*coalesce.Coalescer
	*fake
	group *coalesce.Group
}

// newSubject returns a coalescer of a window that is known and empty. Its group is closed when
// the test ends.
func newSubject(t testing.TB, maxQueued int) subject {
	s := subject{fake: &fake{known: true}, group: coalesce.NewGroup(cmp.Or(maxQueued, 1<<16))}
	s.Coalescer = s.group.New(s.fake)
	t.Cleanup(func() {
		s.group.Close()
		require.Zero(t, s.overlaps, "requests of one coalescer overlap")
	})
	return s
}

// result is what a call of Do or Exclusive returned.
type result struct {
	count uint64
	id    int64
	sent  bool
	err   error
}

func resultOf(r window.Window, sent bool, err error) result {
	return result{r.Count, r.ID, sent, err}
}

// hit makes a hit of 1 in the background. The returned function waits for its result.
func (s subject) hit(ctx context.Context) (wait func() result) {
	return inBackground(func() result { return resultOf(s.Do(ctx, coalesce.Hit{Max: 1 << 40, Increment: 1})) })
}

// operate runs an operation in the background.
func (s subject) operate(ctx context.Context, op coalesce.Operation) (wait func() result) {
	return inBackground(func() result { return resultOf(s.Operate(ctx, op)) })
}

// inBackground calls f in a goroutine and returns when all goroutines of the bubble wait.
func inBackground(f func() result) (wait func() result) {
	c := make(chan result, 1)
	go func() { c <- f() }()
	synctest.Wait()
	return func() result { return <-c }
}

func TestLoneCallerCountsOnItsOwnGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "the caller's")
		for i := range uint64(3) {
			start := time.Now()
			r, _, err := s.Do(ctx, coalesce.Hit{Max: 10, Increment: 2})
			require.NoError(t, err)
			require.Equal(t, 2*i+2, r.Count)
			require.Equal(t, latency, time.Since(start), "one request")
			require.Equal(t, "the caller's", s.ctxs[i].Value(key{}))
		}
		require.Len(t, s.requests, 3)
		require.False(t, s.Busy())
	})
}

func TestLoneCallerDoesNotAllocate(t *testing.T) {
	s := newSubject(t, 0)
	s.noWait = true
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, _, err := s.Do(t.Context(), coalesce.Hit{Max: 1, Increment: 1}); err != nil {
			t.Error(err)
		}
	}))
}

func TestCallersShareARequestPerRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds = 64, 20
		s := newSubject(t, 0)
		var all sync.WaitGroup
		start := time.Now()
		for range callers {
			all.Go(func() {
				for range rounds {
					s.Do(t.Context(), coalesce.Hit{Max: 1 << 40, Increment: 1})
				}
			})
		}
		all.Wait()
		require.EqualValues(t, callers*rounds, s.count)
		require.LessOrEqual(t, len(s.requests), 2*rounds, "a caller that is late by a moment is in the next request")
		require.LessOrEqual(t, time.Since(start), 2*rounds*latency)
	})
}

// A request is fresh right after a Refresh, and no other one is.
func TestFreshIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.outcomes = []coalesce.Outcome{coalesce.NotCounted}
		for range 3 {
			_, _, err := s.Do(t.Context(), coalesce.Hit{Max: 10, Increment: 1})
			require.NoError(t, err)
		}
		var fresh []bool
		for _, b := range s.requests {
			fresh = append(fresh, b.Fresh)
		}
		require.Equal(t, []bool{false, true, false, false}, fresh)
	})
}

func TestSharedHitsAreDescribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		wait := s.hit(t.Context())
		var all sync.WaitGroup
		for i := range uint64(3) {
			all.Go(func() { s.Do(t.Context(), coalesce.Hit{Max: 10 * (i + 1), Increment: i}) })
		}
		synctest.Wait()
		began := time.Now().Add(latency)
		wait()
		all.Wait()
		require.Len(t, s.requests, 2)
		b := s.requests[1]
		require.True(t, began.Equal(b.Now))
		b.Now = time.Time{}
		require.Equal(t, coalesce.SharedHits{Hits: 3, Sum: 3, Max: 30}, b)
	})
}

func TestNothingIsDoneWithAnEndedContext(t *testing.T) {
	s := newSubject(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, result{err: context.Canceled}, resultOf(s.Do(ctx, coalesce.Hit{})))
	require.Equal(t, result{err: context.Canceled}, resultOf(s.Operate(ctx, s.set(1))))
	require.Empty(t, s.requests)
}

func TestOperationsKeepTheirOrderAmongHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		var waits []func() result
		hit := func() { waits = append(waits, s.hit(t.Context())) }
		hit()
		hit()
		waits = append(waits, s.operate(t.Context(), s.set(10)))
		hit()
		hit()
		waits = append(waits, s.operate(t.Context(), s.set(100)), s.operate(t.Context(), s.set(200)))
		hit()
		var counts []uint64
		for _, wait := range waits {
			a := wait()
			require.NoError(t, a.err)
			counts = append(counts, a.count)
		}
		require.Equal(t, []uint64{1, 2, 10, 11, 12, 100, 200, 201}, counts)
	})
}

func TestCanceledOperationDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		first := s.hit(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		queued := s.operate(ctx, s.set(10))
		cancel()
		require.Equal(t, result{err: context.Canceled}, queued())
		first()
		require.EqualValues(t, 2, s.hit(t.Context())().count)

		ctx, cancel = context.WithCancel(t.Context())
		running := s.operate(ctx, s.set(10))
		cancel()
		require.Equal(t, result{sent: true, err: context.Canceled}, running())
		require.EqualValues(t, 11, s.hit(t.Context())().count, "one that runs goes on")
	})
}

func TestABoundEndsAHitThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		first := s.hit(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), latency/2)
		defer cancel()
		bounded := s.hit(ctx)
		begun := time.Now()
		require.Equal(t, result{err: context.DeadlineExceeded}, bounded())
		require.Equal(t, latency/2, time.Since(begun))
		require.EqualValues(t, 1, first().count)
	})
}

func TestFailedRefreshFailsTheHitsUpToTheNextOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.known, s.readErr = false, errStore
		first, second := s.hit(t.Context()), s.hit(t.Context())
		set := s.operate(t.Context(), s.set(10))
		last := s.hit(t.Context())
		require.Equal(t, result{err: errStore}, first())
		require.Equal(t, result{err: errStore}, second())
		require.EqualValues(t, 10, set().count)
		require.EqualValues(t, 11, last().count)
	})
}

func TestHitsThatAreNotCountedAreFirstInTheQueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.outcomes = []coalesce.Outcome{{}, {}}
		ctx, cancel := context.WithCancel(t.Context())
		lone := s.hit(ctx) // its window is over
		second := s.hit(t.Context())
		set := s.operate(t.Context(), s.set(10))
		third := s.hit(t.Context())
		time.Sleep(latency) // the window is refreshed
		synctest.Wait()
		cancel()
		require.Equal(t, result{err: context.Canceled}, lone(), "it no longer shares a request")
		require.Equal(t, result{count: 1, id: 1}, second())
		require.Equal(t, result{count: 10, id: 2, sent: true}, set())
		require.Equal(t, result{count: 11, id: 2}, third())
	})
}

func TestDecidedHitNeedsNoRequestAndNoPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 1)
		s.denying, s.count = true, 5
		counted := s.hit(t.Context()) // its limit is higher
		queued := s.hit(t.Context())
		start := time.Now()
		for range 10 {
			r, _, err := s.Do(t.Context(), coalesce.Hit{Max: 4, Increment: 1})
			require.NoError(t, err)
			require.EqualValues(t, 5, r.Count)
		}
		require.Equal(t, start, time.Now())
		require.EqualValues(t, 6, counted().count)
		require.EqualValues(t, 7, queued().count)
		require.Len(t, s.requests, 2)
	})
}

// The callers of the hits that fill the server's queue have gone. One request remains, however
// many callers come after the first.
func TestCanceledLoneCallersLeaveOneRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), latency/20)
			require.Equal(t, context.DeadlineExceeded, s.hit(ctx)().err)
			cancel()
		}
		synctest.Wait()
		require.Len(t, s.requests, 1)
		require.EqualValues(t, 1, s.hit(t.Context())().count)
		require.Equal(t, 1, s.reads, "the window is refreshed before a hit is counted")
		require.EqualValues(t, 2, s.hit(t.Context())().count)
		require.Equal(t, 1, s.reads, "a lone caller counts its hit itself again")
	})
}

func TestRequestThatMayYetBeCountedIsFollowedByARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.outcomes = []coalesce.Outcome{{Err: errStore, Sent: true}}
		require.Equal(t, result{sent: true, err: errStore}, s.hit(t.Context())())
		s.readErr = errStore
		require.Equal(t, result{err: errStore}, s.hit(t.Context())())
		require.Len(t, s.requests, 1, "nothing is counted while the refresh fails")
		s.known = true
		require.NoError(t, s.hit(t.Context())().err)
		require.Equal(t, 2, s.reads)
	})
}

func TestHitIsNotDeniedByARefreshOlderThanItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.asking, s.count = true, 5
		hit := func() func() result {
			return inBackground(func() result {
				return resultOf(s.Do(t.Context(), coalesce.Hit{Max: 4, Increment: 1}))
			})
		}
		start := time.Now()
		first := hit()
		time.Sleep(latency / 2)
		late := hit()
		require.EqualValues(t, 5, first().count)
		require.Equal(t, latency, time.Since(start))
		require.EqualValues(t, 5, late().count)
		require.Equal(t, 2*latency, time.Since(start))
		require.Equal(t, 2, s.reads)
		require.Empty(t, s.requests)
	})
}

func TestHitFailsIfItsWindowIsAlwaysOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.outcomes = make([]coalesce.Outcome, 1000)
		first, second := s.hit(t.Context()), s.hit(t.Context())
		require.Equal(t, result{err: coalesce.ErrAttempts}, first())
		require.Equal(t, result{err: coalesce.ErrAttempts}, second())
		require.Less(t, len(s.requests), 20)
		s.outcomes = nil
		require.EqualValues(t, 1, s.hit(t.Context())().count)
	})
}

func TestHitFailsIfItsWindowIsOverWheneverItIsToBeCounted(t *testing.T) {
	for _, verdict := range []coalesce.Verdict{coalesce.Defer, coalesce.Share} {
		synctest.Test(t, func(t *testing.T) {
			w := overAtOnce{&fake{outcomes: make([]coalesce.Outcome, 1000)}, verdict}
			group := coalesce.NewGroup(1)
			defer group.Close()
			_, sent, err := group.New(w).Do(t.Context(), coalesce.Hit{Max: 1, Increment: 1})
			require.Equal(t, coalesce.ErrAttempts, err)
			require.False(t, sent)
			require.Less(t, w.reads+len(w.requests), 20)
		})
	}
}

// overAtOnce is a window that is over when its Refresh has returned, or when hits are counted.
type overAtOnce struct {
	*fake
	verdict coalesce.Verdict
}

func (w overAtOnce) Admit(coalesce.SharedHits, coalesce.Hit) (coalesce.Verdict, window.Window) {
	return w.verdict, window.Window{}
}

func TestCanceledHitInFlightHasNoPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 1)
		s.known = false // so that a goroutine counts the hit
		ctx, cancel := context.WithCancel(t.Context())
		first := s.hit(ctx)
		time.Sleep(latency)
		synctest.Wait()
		require.Len(t, s.requests, 1)
		cancel()
		require.Equal(t, result{sent: true, err: context.Canceled}, first())
		second := s.hit(t.Context())
		require.Equal(t, result{err: window.ErrOverloaded}, s.hit(t.Context())())
		require.EqualValues(t, 2, second().count)
	})
}

func TestCanceledHitsDoNotFillTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 2)
		lone := s.hit(t.Context())
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			first, second := s.hit(ctx), s.hit(ctx)
			cancel()
			require.Equal(t, result{err: context.Canceled}, first())
			require.Equal(t, result{err: context.Canceled}, second())
		}
		second, third := s.hit(t.Context()), s.hit(t.Context())
		start := time.Now()
		require.Equal(t, result{err: window.ErrOverloaded}, s.hit(t.Context())())
		require.Equal(t, result{err: window.ErrOverloaded}, s.operate(t.Context(), s.set(1))())
		require.Equal(t, start, time.Now(), "it fails at once")
		require.LessOrEqual(t, coalesce.QueueCap(s.Coalescer), 256)
		require.EqualValues(t, 1, lone().count)
		require.EqualValues(t, 2, second().count)
		require.EqualValues(t, 3, third().count)
		require.Equal(t, window.ErrOverloaded, func() error { // the number of canceled hits is exact
			waits := []func() result{s.hit(t.Context()), s.hit(t.Context()), s.hit(t.Context())}
			defer func() {
				for _, wait := range waits {
					wait()
				}
			}()
			return s.hit(t.Context())().err
		}())
	})
}

func TestStopServesWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.known = false
		served := s.hit(t.Context()) // by a goroutine
		queued := s.hit(t.Context())
		s.group.Stop()
		require.Equal(t, result{err: window.ErrClosed}, s.hit(t.Context())())
		require.Equal(t, result{err: window.ErrClosed}, s.operate(t.Context(), s.set(1))())
		require.EqualValues(t, 1, served().count)
		require.EqualValues(t, 2, queued().count)
	})
}

func TestStopFailsWhatIsQueuedBehindALoneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		lone, queued := s.hit(t.Context()), s.hit(t.Context())
		s.group.Stop()
		require.EqualValues(t, 1, lone().count)
		require.Equal(t, result{err: window.ErrClosed}, queued())
		require.False(t, s.Busy())
	})
}

func TestCloseFailsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		first, second := s.hit(t.Context()), s.hit(t.Context())
		set := s.operate(t.Context(), s.set(1))
		first()
		synctest.Wait() // the second hit's request is under way
		start := time.Now()
		s.group.Close()
		require.Equal(t, start, time.Now())
		require.Equal(t, result{sent: true, err: window.ErrClosed}, second())
		require.Equal(t, result{err: window.ErrClosed}, set())
		require.False(t, s.Busy())
		require.False(t, s.group.Go(func() {}))
	})
}

func TestCloseFailsWhatIsQueuedBehindALoneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		lone, hit, set := s.hit(t.Context()), s.hit(t.Context()), s.operate(t.Context(), s.set(1))
		start := time.Now()
		s.group.Close()
		require.Equal(t, result{err: window.ErrClosed}, hit())
		require.Equal(t, result{err: window.ErrClosed}, set())
		require.Equal(t, start, time.Now(), "they do not wait for the lone caller's request")
		require.EqualValues(t, 1, lone().count)
		require.False(t, s.Busy())
	})
}

func TestCloseWaitsForTheGroupsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := coalesce.NewGroup(0)
		done := false
		require.True(t, g.Go(func() {
			<-g.Context().Done()
			time.Sleep(time.Second)
			done = true
		}))
		g.Close()
		require.True(t, done)
		g.Close()
	})
}

func TestManyCallersLeaveNoMemoryBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() { s.Do(t.Context(), coalesce.Hit{Max: 1 << 40, Increment: 1}) })
		}
		synctest.Wait()
		require.True(t, s.Busy())
		require.Greater(t, coalesce.QueueCap(s.Coalescer), 1000)
		all.Wait()
		synctest.Wait()
		require.False(t, s.Busy())
		require.Less(t, coalesce.QueueCap(s.Coalescer), 100)
	})
}

// Hits, operations, cancellations, failures and windows that end come at random. Whatever
// happens, hits that were counted in one window have places that do not overlap.
func TestPlacesStayApartWhateverHappens(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			s := newSubject(t, 0)
			s.mostSum = 20
			type span struct{ from, to uint64 }
			var mu sync.Mutex
			counted := map[int64][]span{}
			var all sync.WaitGroup
			for c := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, c))
				all.Go(func() {
					for range 30 {
						ctx, cancel := t.Context(), func() {}
						if rng.IntN(4) == 0 {
							ctx, cancel = context.WithTimeout(ctx, rand.N(4*latency))
						}
						switch rng.IntN(100) {
						case 0:
							s.Operate(ctx, s.set(rng.Uint64N(10)))
						case 1:
							s.fake.mu.Lock()
							s.outcomes = append(s.outcomes, coalesce.Outcome{})
							s.fake.mu.Unlock()
						case 2:
							s.fake.mu.Lock()
							s.outcomes = append(s.outcomes, coalesce.Outcome{Err: errStore, Sent: true})
							s.readErr = errStore
							s.fake.mu.Unlock()
						default:
							n := 1 + rng.Uint64N(7)
							r, _, err := s.Do(ctx, coalesce.Hit{Max: 1 << 40, Increment: n})
							if err == nil {
								mu.Lock()
								counted[r.ID] = append(counted[r.ID], span{r.Count - n, r.Count})
								mu.Unlock()
							}
						}
						cancel()
						time.Sleep(rand.N(latency))
					}
				})
			}
			all.Wait()
			require.NotEmpty(t, counted, "seed %d", seed)
			for _, spans := range counted {
				slices.SortFunc(spans, func(a, b span) int { return int(a.from) - int(b.from) })
				for i, s := range spans[1:] {
					require.GreaterOrEqual(t, s.from, spans[i].to, "seed %d", seed)
				}
			}
		})
	}
}

func TestRefusedTakesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		takes := []coalesce.Hit{ // 4, 5 and the last 1 fit
			{Max: 10, Increment: 4}, {Max: 10, Increment: 9}, {Max: 10, Increment: 5}, {Max: 2, Increment: 1},
			{Max: 10, Increment: 3}, {Max: 10, Increment: 1},
		}
		results := make([]window.Window, len(takes))
		errs := make([]error, len(takes))
		first := make(chan struct{})
		go func() { // the others share a request behind it
			defer close(first)
			_, _, err := s.Do(t.Context(), coalesce.Hit{Max: 100})
			require.NoError(t, err)
		}()
		synctest.Wait()
		var all sync.WaitGroup
		for i, take := range takes {
			take.Take = true
			all.Go(func() { results[i], _, errs[i] = s.Do(t.Context(), take) })
			synctest.Wait()
		}
		all.Wait()
		<-first
		counts, refused := []uint64{}, []bool{}
		for i, r := range results {
			require.NoError(t, errs[i])
			counts, refused = append(counts, r.Count), append(refused, r.Refused)
		}
		require.Equal(t, []bool{false, true, false, true, true, false}, refused)
		require.Equal(t, []uint64{4, 4, 9, 9, 9, 10}, counts, "a refusal moves nobody's place")
		time.Sleep(2 * latency)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		require.EqualValues(t, 10, s.count)
		require.Equal(t, []uint64{13}, s.givenBack)
	})
}

func TestHitsAreRefusedIfTheWindowIsFull(t *testing.T) {
	for _, take := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSubject(t, 0)
			s.outcomes = []coalesce.Outcome{{WindowOpen: true, Full: true, Window: window.Window{Count: 250}}}
			r, _, err := s.Do(t.Context(), coalesce.Hit{Max: 255, Increment: 10, Take: take})
			require.NoError(t, err)
			require.True(t, r.Refused)
			require.EqualValues(t, 250, r.Count)
			require.Empty(t, s.givenBack, "nothing was counted")
		})
	}
}

// Whoever holds an idle coalescer counts alone.
func TestHeldCoalescerCountsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.known = true
		require.True(t, s.TryAcquire())
		require.True(t, s.Busy())
		require.False(t, s.TryAcquire())
		var all sync.WaitGroup
		hit := func() {
			all.Go(func() {
				_, _, err := s.Do(t.Context(), coalesce.Hit{Max: 100, Increment: 1})
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		hit()
		hit()
		require.Empty(t, s.requests)
		s.Release(false)
		synctest.Wait()
		require.False(t, s.TryAcquire(), "hits are in flight")
		all.Wait()
		require.Len(t, s.requests, 1)
		require.Equal(t, 2, s.requests[0].Hits)
		require.Zero(t, s.reads)
		synctest.Wait()

		require.True(t, s.TryAcquire())
		s.Release(true)
		require.False(t, s.TryAcquire(), "what was sent may still be counted")
		hit()
		all.Wait()
		require.Equal(t, 1, s.reads, "it is read first what has become of that")
		synctest.Wait()
		require.True(t, s.TryAcquire())
		s.Release(false)
	})
}

func TestHitsThatAreNotCountedKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, 0)
		s.outcomes = []coalesce.Outcome{{WindowOpen: true}, coalesce.NotCounted}
		lone, second, third := s.hit(t.Context()), s.hit(t.Context()), s.hit(t.Context())
		require.NoError(t, lone().err)
		require.Equal(t, result{count: 1, id: 1}, second())
		require.Equal(t, result{count: 2, id: 1}, third())
		require.Len(t, s.requests, 3)
	})
}
