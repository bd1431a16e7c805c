package fixedwindow

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

var errServer = errors.New("server failed")

// latency is how long a request of a subject takes.
const latency = time.Millisecond

// subject is the state of a count with hits in windows of a minute.
type subject struct {
	*countState
	server *hooked
	srv    *mockserver.Server
}

// newSubject returns the state of a count whose window is open and empty, and known.
func newSubject(t *testing.T, change func(o *Options)) subject {
	s := newStranger(t, change)
	r := s.hit(t.Context(), 0)()
	require.NoError(t, r.err)
	s.server.counts.Store(0)
	return s
}

// newStranger returns the state of a count whose window is not known.
func newStranger(t *testing.T, change func(o *Options)) subject {
	srv := inMemory(t)
	srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: latency})
	srv.Inject(mockserver.Fault{Op: codec.OpInsert, Delay: latency})
	o := options(t, srv)
	h := &hooked{Server: o.Servers[0]}
	o.Servers[0] = h
	if change != nil {
		change(&o)
	}
	b := start(t, o)
	l := fixed(time.Minute, 10)
	s, err := b.stateFor(t.Context(), "k", &l, 1)
	require.NoError(t, err)
	return subject{s, h, srv}
}

// over has the next calls that count hits answered as if the window was over.
func (s subject) over(times int) {
	s.server.do = func(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
		if cl.Len() != 2 || times == 0 {
			return s.server.Server.Do(ctx, cl)
		}
		times--
		time.Sleep(latency)
		cl.Responses = append(cl.Responses, conn.Response{}, conn.Response{})
		return true, true, nil
	}
}

func queueOf(n int) func(o *Options) { return func(o *Options) { o.MaxQueued = n } }

// result is what a call of do or operate returned.
type result struct {
	count uint64
	sent  bool
	err   error
}

func resultOf(a answer) result { return result{a.window.Count, a.sent, a.err} }

// hit makes a hit of n in the background. The returned function waits for its result.
func (s subject) hit(ctx context.Context, n uint64) (wait func() result) {
	return s.inBackground(func() result { return resultOf(s.countHit(ctx, hit{max: 1 << 15, n: n})) })
}

// operation runs an operation in the background that takes latency, and returns the known count.
func (s subject) operation(ctx context.Context) (wait func() result) {
	return s.inBackground(func() result {
		return resultOf(s.operate(ctx, func(ctx context.Context) answer {
			time.Sleep(latency)
			k := s.current()
			return answer{window: window.Window{Count: 1000 + k.Count}, sent: true}
		}))
	})
}

// inBackground calls f in a goroutine and returns when all goroutines of the bubble wait.
func (s subject) inBackground(f func() result) (wait func() result) {
	c := make(chan result, 1)
	go func() { c <- f() }()
	synctest.Wait()
	return func() result { return <-c }
}

// resultsOf waits for the counts of calls that succeed.
func resultsOf(t *testing.T, waits ...func() result) (counts []uint64) {
	t.Helper()
	for _, wait := range waits {
		r := wait()
		require.NoError(t, r.err)
		counts = append(counts, r.count)
	}
	return counts
}

func TestCallersShareARequestPerRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds = 64, 20
		s := newSubject(t, nil)
		var all sync.WaitGroup
		began := time.Now()
		for range callers {
			all.Go(func() {
				for range rounds {
					s.countHit(t.Context(), hit{max: 1 << 15, n: 1})
				}
			})
		}
		all.Wait()
		k := s.current()
		require.EqualValues(t, callers*rounds, k.Count)
		require.LessOrEqual(t, s.server.counts.Load(), int64(2*rounds), "a caller that is late by a moment is in the next request")
		require.LessOrEqual(t, time.Since(began), 2*rounds*latency)
		synctest.Wait()
		require.False(t, s.busy())
		require.LessOrEqual(t, cap(s.queue.shared.callers), 1, "only the memory of a lone hit is kept")
	})
}

// What is canceled while it waits is not done, and takes no place in the queue. What is under way goes on.
func TestCanceledCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, queueOf(2))
		lone := s.hit(t.Context(), 1)
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			first, second := s.hit(ctx, 1), s.operation(ctx)
			require.Equal(t, result{err: window.ErrOverloaded}, s.hit(t.Context(), 1)())
			cancel()
			require.Equal(t, result{err: context.Canceled}, first())
			require.Equal(t, result{err: context.Canceled}, second())
		}
		ctx, cancel := context.WithTimeout(t.Context(), latency/2)
		defer cancel()
		began := time.Now()
		require.Equal(t, result{err: context.DeadlineExceeded}, s.hit(ctx, 1)())
		require.Equal(t, latency/2, time.Since(began))
		second, third := s.hit(t.Context(), 1), s.hit(t.Context(), 1)
		require.Equal(t, result{err: window.ErrOverloaded}, s.operation(t.Context())(), "it fails at once")
		require.Equal(t, []uint64{1, 2, 3}, resultsOf(t, lone, second, third))

		ctx, cancel = context.WithCancel(t.Context())
		running := s.operation(ctx)
		cancel()
		require.Equal(t, result{sent: true, err: context.Canceled}, running())
		require.EqualValues(t, 4, s.hit(t.Context(), 1)().count)
	})
}

func TestCanceledHitInFlightHasNoPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStranger(t, queueOf(1)) // so that a goroutine counts the hit
		ctx, cancel := context.WithCancel(t.Context())
		first := s.hit(ctx, 1)
		for waits := true; waits; { // for a connection and a lookup
			time.Sleep(latency / 4)
			s.mu.Lock()
			waits = s.queue.waiting.Len() > 0
			s.mu.Unlock()
		}
		cancel()
		require.Equal(t, result{sent: true, err: context.Canceled}, first())
		second := s.hit(t.Context(), 1)
		require.Equal(t, result{err: window.ErrOverloaded}, s.hit(t.Context(), 1)())
		require.EqualValues(t, 2, second().count)
	})
}

func TestFailedLookupFailsTheHitsUpToTheNextOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStranger(t, nil)
		var works atomic.Bool
		s.server.dedicated = func(ctx context.Context) (*conn.Conn, error) {
			if works.Load() {
				return s.server.Server.Dedicated(ctx)
			}
			time.Sleep(latency)
			return nil, errServer
		}
		first, second := s.hit(t.Context(), 1), s.hit(t.Context(), 1)
		operation := s.operation(t.Context())
		last := s.hit(t.Context(), 1)
		require.ErrorIs(t, first().err, errServer)
		require.ErrorIs(t, second().err, errServer)
		works.Store(true)
		require.Equal(t, []uint64{1000, 1}, resultsOf(t, operation, last))
	})
}

func TestHitsThatAreNotCountedAreFirstInTheQueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, nil)
		s.over(2)
		ctx, cancel := context.WithCancel(t.Context())
		lone := s.hit(ctx, 1) // its window is over
		second, third := s.hit(t.Context(), 2), s.hit(t.Context(), 3)
		operation := s.operation(t.Context())
		fourth := s.hit(t.Context(), 4)
		time.Sleep(latency) // the window is looked up
		synctest.Wait()
		cancel()
		require.Equal(t, result{err: context.Canceled}, lone(), "it no longer shares a request")
		require.Equal(t, []uint64{2, 5, 1005, 9}, resultsOf(t, second, third, operation, fourth))
	})
}

func TestHitFailsIfItsWindowIsOverWheneverItIsToBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, nil)
		s.over(1000)
		first, second := s.hit(t.Context(), 1), s.hit(t.Context(), 1)
		for _, r := range []result{first(), second()} {
			require.ErrorIs(t, r.err, ErrTooLate)
			require.False(t, r.sent)
		}
		require.Less(t, s.server.counts.Load(), int64(20))
		s.over(0)
		require.EqualValues(t, 1, s.hit(t.Context(), 1)().count)
	})
}

func TestHitIsNotDeniedByALookupOlderThanItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(o *Options) { o.DenialMemory = -1 })
		require.EqualValues(t, 5, s.hit(t.Context(), 5)().count)
		denied := func() func() result {
			return s.inBackground(func() result { return resultOf(s.countHit(t.Context(), hit{max: 4, n: 1})) })
		}
		began := time.Now()
		first := denied()
		time.Sleep(latency / 2)
		late := denied()
		require.Equal(t, result{count: 5}, first())
		require.Equal(t, latency, time.Since(began))
		require.Equal(t, result{count: 5}, late())
		require.Equal(t, 2*latency, time.Since(began))
		require.EqualValues(t, 2, s.server.reads.Load())
		require.EqualValues(t, 1, s.server.counts.Load())
	})
}

// The callers of the hits that fill the server's queue have gone. One request remains, however many callers come after
// the first.
func TestCanceledLoneCallersLeaveOneRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, nil)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), latency/20)
			require.Equal(t, context.DeadlineExceeded, s.hit(ctx, 1)().err)
			cancel()
		}
		synctest.Wait()
		require.EqualValues(t, 1, s.server.counts.Load())
		require.EqualValues(t, 2, s.hit(t.Context(), 1)().count)
		require.EqualValues(t, 1, s.server.reads.Load(), "the window is read before a hit is counted")
		require.EqualValues(t, 3, s.hit(t.Context(), 1)().count)
		require.EqualValues(t, 1, s.server.reads.Load(), "a lone caller counts its hit itself again")
	})
}

// Whoever holds an idle queue counts alone.
func TestHeldQueueCountsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, nil)
		require.True(t, s.hold())
		require.True(t, s.busy())
		require.False(t, s.hold())
		first, second := s.hit(t.Context(), 1), s.hit(t.Context(), 1)
		require.Zero(t, s.server.counts.Load())
		s.release(false)
		synctest.Wait()
		require.False(t, s.hold(), "hits are in flight")
		require.Equal(t, []uint64{1, 2}, resultsOf(t, first, second))
		require.EqualValues(t, 1, s.server.counts.Load())
		require.Zero(t, s.server.reads.Load())
		synctest.Wait()

		require.True(t, s.hold())
		s.release(true)
		require.False(t, s.hold(), "what was sent may still be counted")
		require.EqualValues(t, 3, s.hit(t.Context(), 1)().count)
		require.EqualValues(t, 1, s.server.reads.Load(), "it is read first what has become of that")
		synctest.Wait()
		require.True(t, s.hold())
		s.release(false)
	})
}

func TestStopServesWhatAGoroutineServes(t *testing.T) {
	closed := result{err: window.ErrClosed}
	synctest.Test(t, func(t *testing.T) {
		s := newStranger(t, nil)
		served, queued := s.hit(t.Context(), 1), s.hit(t.Context(), 1)
		s.backend.group.stop()
		require.Equal(t, closed, s.hit(t.Context(), 1)())
		require.Equal(t, closed, s.operation(t.Context())())
		require.Equal(t, []uint64{1, 2}, resultsOf(t, served, queued))
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, nil)
		lone, queued := s.hit(t.Context(), 1), s.hit(t.Context(), 1)
		s.backend.group.stop()
		require.EqualValues(t, 1, lone().count)
		require.Equal(t, closed, queued(), "behind a lone caller")
		require.False(t, s.busy())
	})
}

func TestCloseFailsWhatIsUnderWay(t *testing.T) {
	for _, lone := range []bool{false, true} { // the request under way is that of a goroutine, or of a lone caller
		synctest.Test(t, func(t *testing.T) {
			s := newSubject(t, nil)
			first, hit, operation := s.hit(t.Context(), 1), s.hit(t.Context(), 1), s.operation(t.Context())
			if !lone {
				require.EqualValues(t, 1, first().count)
				synctest.Wait() // the second hit's request is under way
			}
			began := time.Now()
			s.backend.group.stop()
			s.backend.group.close()
			require.Equal(t, result{sent: !lone, err: window.ErrClosed}, hit())
			require.Equal(t, result{err: window.ErrClosed}, operation())
			require.Equal(t, began, time.Now(), "they wait for no request")
			if lone {
				require.EqualValues(t, 1, first().count)
			}
			require.False(t, s.busy())
			require.False(t, s.backend.group.start(func() {}))
		})
	}
}

func TestRefusedTakesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, nil)
		takes := []hit{ // 4, 5 and the last 1 fit
			{max: 10, n: 4}, {max: 10, n: 9}, {max: 10, n: 5}, {max: 2, n: 1}, {max: 10, n: 3}, {max: 10, n: 1},
		}
		first := s.hit(t.Context(), 0) // the others share a request behind it
		results := make([]answer, len(takes))
		var all sync.WaitGroup
		for i, take := range takes {
			take.take = true
			all.Go(func() {
				if results[i] = s.countHit(t.Context(), take); results[i].err != nil {
					t.Error(results[i].err)
				}
			})
			synctest.Wait()
		}
		resultsOf(t, first)
		all.Wait()
		counts, refused := []uint64{}, []bool{}
		for _, a := range results {
			counts, refused = append(counts, a.window.Count), append(refused, a.window.Refused)
		}
		require.Equal(t, []bool{false, true, false, true, true, false}, refused)
		require.Equal(t, []uint64{4, 4, 9, 9, 9, 10}, counts, "a refusal moves nobody's place")
		w, _, err := s.backend.Peek(t.Context(), "k", fixed(time.Minute, 1), 0)
		require.NoError(t, err)
		require.EqualValues(t, 10, w.Count)
	})
}

// While a take that was refused is given back, it refuses no other take.
func TestTakesThatAreGivenBackDoNotRefuseOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, nil)
		other := client(t, s.srv)
		w, _, err := other.Take(t.Context(), "k", fixed(time.Minute, 10), 6)
		require.NoError(t, err)
		require.False(t, w.Refused)
		s.srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Delay: latency})
		take := func(n uint64) func() result {
			return s.inBackground(func() result { return resultOf(s.countHit(t.Context(), hit{max: 10, n: n, take: true})) })
		}
		first := take(5)
		time.Sleep(latency)
		second := take(4)
		require.Equal(t, []uint64{6, 10}, resultsOf(t, first, second))
	})
}

// What a take that will be refused has added is in the counter until it is given back. A charge by another client that
// finds no room meanwhile is not lost.
func TestAChargeIsCountedAfterATakeThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t, mockserver.WithValueSize(1))
		one, other := client(t, srv), client(t, srv)
		l := fixed(time.Minute, 200)
		taken(t, one, "k", l, 1) // it does not know what the other one takes
		taken(t, other, "k", l, 190)
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: 10 * time.Millisecond})
		var refused atomic.Bool
		go func() {
			w, _, err := one.Take(t.Context(), "k", l, 60)
			refused.Store(err == nil && w.Refused)
		}()
		time.Sleep(latency)
		w, _, err := other.Charge(t.Context(), "k", l, 10)
		require.NoError(t, err)
		require.Equal(t, uint64(201), w.Count)
		time.Sleep(time.Second)
		require.True(t, refused.Load())
		require.Equal(t, uint64(201), countOf(t, one, "k", l))
	})
}
