package batch_test

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/window"
)

// asked is what a call asks of a store, which answers with the text and the rank.
type asked struct {
	text   string
	alone  bool
	size   int
	answer string
}

type (
	call    = batch.Call[asked]
	batcher = batch.Batcher[string, asked]
)

// store is a store that answers after a time.
type store struct {
	mu       sync.Mutex
	takes    time.Duration   // of a request
	requests []string        // the texts of the entries of each request, and how many calls they have
	ctx      context.Context // of the last request
	inFlight int
	most     int // in flight at a time
}

func (s *store) send(ctx context.Context, entries [][]*call) {
	var texts []string
	for _, e := range entries {
		texts = append(texts, strings.Repeat(e[0].Value.text, len(e)))
	}
	s.mu.Lock()
	s.requests = append(s.requests, strings.Join(texts, " "))
	s.ctx = ctx
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	takes := s.takes
	s.mu.Unlock()
	time.Sleep(takes)
	for _, e := range entries {
		for rank, c := range e {
			c.Value.answer = e[0].Value.text + string(rune('0'+rank))
		}
	}
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
}

// sent returns the requests so far, and the ctx of the last one.
func (s *store) sent() (requests []string, last context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests), s.ctx
}

// run runs a test with a store whose requests take a millisecond, and a batcher whose options change has changed.
func run(t *testing.T, change func(o *batch.Options[string, asked]), f func(t *testing.T, s *store, b *batcher)) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Millisecond}
		o := batch.Options[string, asked]{
			Send: s.send, Key: func(a *asked) (string, bool) { return a.text, !a.alone }, Size: func(a *asked) int { return max(1, a.size) },
			MaxSize: 10, MaxQueued: 20, Punctual: true,
		}
		if change != nil {
			change(&o)
		}
		f(t, s, batch.New(o))
	})
}

func do(b *batcher, ctx context.Context, a asked) (answer string, sent bool, err error) {
	c := &call{Value: a}
	if sent, err = b.Do(ctx, c); err != nil {
		return "", sent, err // the call is still that of the Batcher
	}
	return c.Value.answer, sent, nil
}

// start makes calls at one time, in their order, and returns a function that returns their answers.
func start(t *testing.T, b *batcher, ctx context.Context, calls ...asked) func() []string {
	answers := make([]string, len(calls))
	var all sync.WaitGroup
	for i, a := range calls {
		all.Go(func() {
			answer, _, err := do(b, ctx, a)
			if err != nil {
				answer = err.Error()
			}
			answers[i] = answer
		})
		synctest.Wait()
	}
	return func() []string {
		all.Wait()
		return answers
	}
}

// texts returns calls with these texts.
func texts(all string) (calls []asked) {
	for _, text := range strings.Fields(all) {
		calls = append(calls, asked{text: text})
	}
	return calls
}

// occupy has as many requests in flight as may be.
func occupy(t *testing.T, b *batcher) {
	for range batch.MaxInFlight {
		go do(b, t.Context(), asked{text: "x"})
		time.Sleep(time.Millisecond)
	}
}

// brief returns a ctx of a caller that sends its call itself.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A lone caller sends its call itself, unless the end of its ctx could be noticed late, or not at all. Otherwise it
// returns when its ctx ends, and the request goes on.
func TestWhoSendsItsCallItself(t *testing.T) {
	for _, test := range []struct {
		timeout, cancel time.Duration // 0: never
		punctual        bool
		itself          bool
	}{
		{itself: true},
		{punctual: true, itself: true},
		{timeout: 500 * time.Millisecond, punctual: true, itself: true},
		{timeout: 500 * time.Millisecond},
		{timeout: time.Minute, punctual: true},
		{timeout: time.Minute, cancel: time.Second, punctual: true},
		{cancel: time.Second, punctual: true},
	} {
		run(t, func(o *batch.Options[string, asked]) { o.Punctual = test.punctual }, func(t *testing.T, s *store, b *batcher) {
			s.takes = time.Hour
			ctx, cancel := context.Background(), func() {}
			ends := s.takes
			if test.timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, test.timeout)
				ends = test.timeout
			}
			if test.cancel > 0 {
				ctx, cancel = context.WithCancel(ctx)
				time.AfterFunc(test.cancel, cancel)
				ends = test.cancel
			}
			defer cancel()
			begun := time.Now()
			answer, sent, err := do(b, ctx, asked{text: "a"})
			require.True(t, sent)
			_, sentWith := s.sent()
			require.Equal(t, test.itself, sentWith == ctx, "%+v", test)
			if test.itself {
				require.NoError(t, err)
				require.Equal(t, "a0", answer)
				return
			}
			require.Equal(t, ctx.Err(), err)
			require.Equal(t, ends, time.Since(begun))
			require.NoError(t, sentWith.Err(), "the request ends with the caller")
			time.Sleep(2 * time.Hour)
		})
	}
}

func TestCallsThatFindNoRoomShareTheNextRequest(t *testing.T) {
	for _, test := range []struct {
		calls       []asked
		maxInFlight int
		answers     string
		requests    []string
	}{
		{texts("x a x x a b c b a b"), 0, "x0 a0 x0 x0 a0 b0 c0 b1 a1 b2", []string{"x", "a", "x", "x", "aa bbb c"}},
		{texts("a b c a"), 1, "a0 b0 c0 a0", []string{"a", "b c a"}},
		{[]asked{{text: "x"}, {text: "a", alone: true}, {text: "a"}, {text: "a"}, {text: "a", alone: true}}, 1, "x0 a0 a0 a1 a0", []string{"x", "a aa a"}},
		{ // requests are bounded, but for a call that is larger
			[]asked{{text: "x"}, {text: "a", size: 6}, {text: "b", size: 4}, {text: "c"}, {text: "d", size: 30}, {text: "e"}, {text: "f"}}, 1,
			"x0 a0 b0 c0 d0 e0 f0", []string{"x", "a b", "c", "d", "e f"},
		},
	} {
		run(t, func(o *batch.Options[string, asked]) { o.MaxInFlight = test.maxInFlight }, func(t *testing.T, s *store, b *batcher) {
			answers := start(t, b, brief(t), test.calls...)
			require.Equal(t, test.answers, strings.Join(answers(), " "))
			requests, _ := s.sent()
			require.Equal(t, test.requests, requests)
			require.Equal(t, cmp.Or(test.maxInFlight, batch.MaxInFlight), s.most)
		})
	}
}

// Of requests to a store that is near, two are in flight. Two that take long for once hold up others for the patience
// only, and those to a store that is far do not wait.
func TestRequestsAreInFlightTogetherIfTheyTakeLong(t *testing.T) {
	run(t, func(o *batch.Options[string, asked]) { o.Patience = 100 * time.Microsecond }, func(t *testing.T, s *store, b *batcher) {
		s.takes = 20 * time.Microsecond
		for range 5 {
			start(t, b, brief(t), texts("a b c")...)()
			synctest.Wait()
			do(b, brief(t), asked{text: "d"}) // alone again
		}
		require.Equal(t, 2, s.most)
		s.takes = time.Second
		start(t, b, brief(t), texts("late late")...)
		s.takes = 20 * time.Microsecond
		time.Sleep(60 * time.Microsecond)
		start(t, b, brief(t), asked{text: "x"})
		time.Sleep(60 * time.Microsecond)
		start(t, b, brief(t), asked{text: "y"})()
		requests, _ := s.sent()
		require.Equal(t, []string{"late", "late", "x y"}, requests[len(requests)-3:])
		time.Sleep(time.Second)
		s.most = 0
		start(t, b, brief(t), texts("a b c")...)()
		require.Equal(t, 2, s.most)
		s.takes = time.Millisecond
		for range 10 {
			do(b, brief(t), asked{text: "a"})
		}
		start(t, b, brief(t), texts("a b c")...)()
		require.Equal(t, 3, s.most)
	})
}

// After a request of several calls, their callers are about to call again: the first of them does not send alone.
func TestAfterARequestOfSeveralNobodySendsItself(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // a caller that gets its answer calls again before any other goroutine runs
	run(t, nil, func(t *testing.T, s *store, b *batcher) {
		start(t, b, brief(t), texts("a b c d e f")...)()
		synctest.Wait() // until nobody is about to send
		ctx := brief(t)
		for _, itself := range []bool{false, true} { // then the last request had a single call
			do(b, ctx, asked{text: "d"})
			_, sentWith := s.sent()
			require.Equal(t, itself, sentWith == ctx)
		}
	})
}

// The queue is bounded. A caller whose ctx ends leaves it, and is not sent.
func TestTheQueueIsBoundedAndLeft(t *testing.T) {
	run(t, nil, func(t *testing.T, s *store, b *batcher) {
		s.takes = time.Minute
		occupy(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		left := start(t, b, ctx, slices.Repeat(texts("gone"), 12)...)
		start(t, b, t.Context(), slices.Repeat(texts("here"), 8)...)
		_, sent, err := do(b, t.Context(), asked{text: "more"})
		require.False(t, sent)
		require.ErrorIs(t, err, window.ErrOverloaded)
		cancel()
		for _, answer := range left() {
			require.Equal(t, context.Canceled.Error(), answer)
		}
		_, sent, err = do(b, ctx, asked{text: "gone"})
		require.False(t, sent)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Minute)
		synctest.Wait()
		requests, _ := s.sent()
		require.Equal(t, []string{strings.Repeat("here", 8)}, requests[batch.MaxInFlight:])
		time.Sleep(time.Hour)
	})
}

// A request costs what its calls do, however many others are queued.
func TestRequestsDoNotCopyTheQueue(t *testing.T) {
	const queued = 10_000
	run(t, func(o *batch.Options[string, asked]) { o.MaxQueued = queued }, func(t *testing.T, s *store, b *batcher) {
		s.takes = time.Minute
		occupy(t, b)
		var all sync.WaitGroup
		for range queued {
			all.Go(func() { do(b, t.Context(), asked{text: "q", alone: true}) })
		}
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		all.Wait()
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(queued*1000))
		requests, _ := s.sent()
		require.Len(t, requests, batch.MaxInFlight+queued/10)
	})
}

func TestEveryCallIsAnsweredOnce(t *testing.T) {
	run(t, nil, func(t *testing.T, s *store, b *batcher) {
		s.takes = 0
		var all sync.WaitGroup
		for g := range 50 {
			all.Go(func() {
				for i := range 200 {
					timeout := time.Minute
					if (g+i)%3 == 0 {
						timeout = 900 * time.Millisecond
					}
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					text := string(rune('a' + (g+i)%7))
					answer, _, err := do(b, ctx, asked{text: text})
					cancel()
					if err != nil && err != window.ErrOverloaded || err == nil && answer[:1] != text {
						t.Error(text, answer, err)
					}
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, s.most, batch.MaxInFlight)
	})
}
