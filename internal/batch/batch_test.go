package batch_test

import (
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
	takes    time.Duration // of a request
	requests []string      // the texts of the entries of each request, and how many calls they have
	ctxs     []context.Context
	inFlight int
	most     int // in flight at a time
}

func (s *store) send(ctx context.Context, entries []*call) {
	var texts []string
	for _, e := range entries {
		texts = append(texts, strings.Repeat(e.Value.text, e.Times))
	}
	s.mu.Lock()
	s.requests = append(s.requests, strings.Join(texts, " "))
	s.ctxs = append(s.ctxs, ctx)
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	takes := s.takes
	s.mu.Unlock()
	time.Sleep(takes)
	for _, e := range entries {
		n := 0
		for c := e; c != nil; c = c.Next {
			c.Value.answer = e.Value.text + string(rune('0'+c.Rank))
			n++
		}
		if n != e.Times {
			panic("an entry has other calls than it says")
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
	if len(s.ctxs) > 0 {
		last = s.ctxs[len(s.ctxs)-1]
	}
	return slices.Clone(s.requests), last
}

func newBatcher(s *store) *batcher { return batch.New(options(s)) }

func options(s *store) batch.Options[string, asked] {
	return batch.Options[string, asked]{
		Send: s.send, Key: func(a *asked) (string, bool) { return a.text, !a.alone }, Size: func(a *asked) int { return max(1, a.size) },
		MaxSize: 10, MaxQueued: 20,
	}
}

func do(b *batcher, ctx context.Context, text string) (answer string, sent bool, err error) {
	c := &call{Value: asked{text: text}}
	if sent, err = b.Do(ctx, c); err != nil {
		return "", sent, err // the call is still that of the Batcher
	}
	return c.Value.answer, sent, nil
}

// brief returns a ctx of a caller that sends its call itself.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestALoneCallerSendsItsCallItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Millisecond}
		b := newBatcher(s)
		for _, ctx := range []context.Context{brief(t), context.Background()} {
			answer, sent, err := do(b, ctx, "a")
			require.NoError(t, err)
			require.True(t, sent)
			require.Equal(t, "a0", answer)
			_, sentWith := s.sent()
			require.Equal(t, ctx, sentWith, "not its own ctx")
		}
	})
}

// The end of these could be noticed late, or not at all.
func TestACallerWhoseContextMayEndAtAnyTimeDoesNotSendItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Hour}
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, parent := range []context.Context{t.Context(), long} {
			ctx, cancel := context.WithCancel(parent)
			time.AfterFunc(time.Second, cancel)
			begun := time.Now()
			_, sent, err := do(newBatcher(s), ctx, "a")
			require.ErrorIs(t, err, context.Canceled)
			require.True(t, sent)
			require.Equal(t, time.Second, time.Since(begun))
			_, sentWith := s.sent()
			require.NoError(t, sentWith.Err(), "the request ends with the caller")
		}
		time.Sleep(2 * time.Hour)
	})
}

// If the end of a ctx is noticed late, only callers whose ctx never ends send their calls.
func TestNoCallerWaitsForASendThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Hour}
		o := options(s)
		o.Late = true
		b := batch.New(o)
		ctx, begun := brief(t), time.Now()
		_, sent, err := do(b, ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, sent)
		require.Equal(t, 500*time.Millisecond, time.Since(begun))
		do(b, context.Background(), "a")
		_, sentWith := s.sent()
		require.Equal(t, context.Background(), sentWith)
	})
}

// start makes calls at one time, in their order, and returns a function that returns their answers.
func start(t *testing.T, b *batcher, ctx context.Context, texts ...string) func() []string {
	answers := make([]string, len(texts))
	var all sync.WaitGroup
	for i, text := range texts {
		all.Go(func() {
			answer, _, err := do(b, ctx, text)
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

func TestCallsThatFindNoRoomShareTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Millisecond}
		b := newBatcher(s)
		answers := start(t, b, brief(t), "x", "a", "x", "x", "a", "b", "c", "b", "a", "b")
		require.Equal(t, []string{"x0", "a0", "x0", "x0", "a0", "b0", "c0", "b1", "a1", "b2"}, answers())
		requests, _ := s.sent()
		require.Equal(t, []string{"x", "a", "x", "x", "aa bbb c"}, requests)
		require.Equal(t, batch.MaxInFlight, s.most)
	})
}

// Requests to a store that is near follow each other. One that takes long for once holds up others for the patience
// only, and those to a store that is far do not wait.
func TestRequestsAreInFlightTogetherIfTheyTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: 20 * time.Microsecond}
		o := options(s)
		o.Patience = 100 * time.Microsecond
		b := batch.New(o)
		for range 5 {
			start(t, b, brief(t), "a", "b", "c")()
			synctest.Wait()
			do(b, brief(t), "d") // alone again
		}
		require.Equal(t, 1, s.most)
		s.takes = time.Second
		start(t, b, brief(t), "late")
		s.takes = 20 * time.Microsecond
		time.Sleep(60 * time.Microsecond)
		start(t, b, brief(t), "x")
		time.Sleep(60 * time.Microsecond)
		start(t, b, brief(t), "y")()
		requests, _ := s.sent()
		require.Equal(t, []string{"late", "x y"}, requests[len(requests)-2:])
		time.Sleep(time.Second)
		s.most = 0
		start(t, b, brief(t), "a", "b", "c")()
		require.Equal(t, 1, s.most)
		s.takes = time.Millisecond
		for range 10 {
			do(b, brief(t), "a")
		}
		start(t, b, brief(t), "a", "b", "c")()
		require.Equal(t, 3, s.most)
	})
}

// After a request of several calls, their callers are about to call again: the first of them does not send alone.
func TestAfterARequestOfSeveralNobodySendsItself(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // a caller that gets its answer calls again before any other goroutine runs
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Millisecond}
		b := newBatcher(s)
		start(t, b, brief(t), "a", "b", "c", "d", "e", "f")()
		synctest.Wait() // until nobody is about to send
		ctx := brief(t)
		do(b, ctx, "d")
		_, sentWith := s.sent()
		require.NotEqual(t, ctx, sentWith)
		do(b, ctx, "e") // the last request had a single call
		_, sentWith = s.sent()
		require.Equal(t, ctx, sentWith)
	})
}

func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Millisecond}
		b := newBatcher(s)
		var all sync.WaitGroup
		for _, size := range []int{1, 1, 1, 1, 6, 4, 1, 30, 1, 0} {
			all.Go(func() { b.Do(brief(t), &call{Value: asked{text: string(rune('a' + size)), size: size}}) })
			synctest.Wait()
		}
		all.Wait()
		requests, _ := s.sent()
		require.Equal(t, []string{"b", "b", "b", "b", "g e", "b", "\x7f", "b a"}, requests)
	})
}

func TestACallerWhoseContextEndsLeavesAndIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Minute}
		b := newBatcher(s)
		for range batch.MaxInFlight { // the next ones wait in the queue
			go do(b, t.Context(), "x")
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := start(t, b, ctx, slices.Repeat([]string{"gone"}, 12)...)
		start(t, b, t.Context(), "here", "here")
		cancel()
		for _, answer := range left() {
			require.Equal(t, context.Canceled.Error(), answer)
		}
		_, sent, err := do(b, canceled(), "gone")
		require.False(t, sent)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Minute)
		synctest.Wait()
		requests, _ := s.sent()
		require.Equal(t, []string{"herehere"}, requests[batch.MaxInFlight:])
		time.Sleep(time.Hour)
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Minute}
		b := newBatcher(s)
		for range batch.MaxInFlight {
			go do(b, t.Context(), "x")
			time.Sleep(time.Millisecond)
		}
		queued := start(t, b, t.Context(), slices.Repeat([]string{"q"}, 20)...)
		_, sent, err := do(b, t.Context(), "more")
		require.ErrorIs(t, err, window.ErrOverloaded)
		require.False(t, sent)
		require.NotContains(t, queued(), window.ErrOverloaded.Error())
	})
}

func TestEveryCallIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		b := newBatcher(s)
		var all sync.WaitGroup
		for g := range 50 {
			all.Go(func() {
				for i := range 200 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if (g+i)%3 == 0 {
						ctx, cancel = context.WithTimeout(t.Context(), 900*time.Millisecond)
					}
					text := string(rune('a' + (g+i)%7))
					answer, _, err := do(b, ctx, text)
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

// Fewer requests can be in flight. A call that is equal to no other is an entry of its own.
func TestOptionsBoundTheRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Second}
		o := options(s)
		o.MaxInFlight = 1
		b := batch.New(o)
		for i := range 5 {
			go b.Do(t.Context(), &call{Value: asked{text: "a", alone: i != 3}})
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		requests, _ := s.sent()
		require.Equal(t, []string{"a", "a a a a"}, requests)
		require.Equal(t, 1, s.most)
	})
}
