package coalesce_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/deadline"
	"github.com/throttr-go/throttr/window"
)

// addition is a call that adds to a window.
type addition struct {
	key   string
	n     uint64
	count uint64 // after it
	err   error
}

type adding = coalesce.Combiner[addition]

// adder is a store of windows in memory. Each of its requests takes latency.
type adder struct {
	noWait bool // requests take no time

	mu       sync.Mutex
	counts   map[string]uint64
	requests [][]addition // without what was returned
	ctxs     []context.Context
	broken   string // a window that nothing can be added to
	err      error  // of the next request
}

func (a *adder) add(ctx context.Context, calls []*coalesce.Call[addition]) {
	a.mu.Lock()
	if a.counts == nil {
		a.counts = map[string]uint64{}
	}
	if !a.noWait {
		var request []addition
		for _, c := range calls {
			request = append(request, addition{key: c.Value.key, n: c.Value.n})
		}
		a.requests, a.ctxs = append(a.requests, request), append(a.ctxs, ctx)
	}
	err := a.err
	a.err = nil
	a.mu.Unlock()
	if !a.noWait {
		time.Sleep(latency)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range calls {
		v := &c.Value
		switch {
		case err != nil:
			v.err = err
		case v.key == a.broken:
			v.err = errOverflow
		default:
			a.counts[v.key] += v.n
			v.count = a.counts[v.key]
		}
	}
}

// combiner returns a combiner for a with one partition.
func (a *adder) combiner(maxInFlight int) *adding {
	return coalesce.NewCombiner(coalesce.CombinerOptions[addition]{
		Send: a.add, Partitions: 1, MaxSize: 100, MaxInFlight: maxInFlight, MaxQueued: 1000,
	})
}

// added is the outcome of a hit.
type added struct {
	count uint64
	sent  bool
	err   error
}

// add has a hit counted.
func add(ctx context.Context, c *adding, key string, n uint64) added {
	return addOfSize(ctx, c, 0, key, n, 1)
}

func addOfSize(ctx context.Context, c *adding, partition int, key string, n uint64, size int) added {
	p := c.Get()
	p.Value, p.Size = addition{key: key, n: n}, size
	sent, err := c.Do(ctx, partition, p)
	if err != nil {
		return added{0, sent, err}
	}
	defer c.Put(p)
	return added{p.Value.count, sent, p.Value.err}
}

// begin has a hit counted in a goroutine, which it waits to be blocked.
func begin(ctx context.Context, c *adding, key string, n uint64) <-chan added {
	done := make(chan added, 1)
	go func() { done <- add(ctx, c, key, n) }()
	synctest.Wait()
	return done
}

func TestHitDoesNotWaitForAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a adder
		c := a.combiner(3)
		start := time.Now()
		var all []<-chan added
		for range 3 {
			all = append(all, begin(context.Background(), c, "a", 1))
		}
		for _, done := range all {
			require.NoError(t, (<-done).err)
		}
		require.Equal(t, latency, time.Since(start), "all were sent at once")
		require.Len(t, a.requests, 3)
	})
}

func TestRequestHasBoundedHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a adder
		c := a.combiner(2)
		start := time.Now()
		var all []<-chan added
		for range 2 + 250 {
			all = append(all, begin(t.Context(), c, "a", 1))
		}
		for _, done := range all {
			require.NoError(t, (<-done).err)
		}
		var sizes []int
		for _, r := range a.requests {
			sizes = append(sizes, len(r))
		}
		require.Equal(t, []int{1, 1, 100, 100, 50}, sizes)
		require.Equal(t, 3*latency, time.Since(start), "two are in flight at a time")
	})
}

func TestHitThatIsCanceledInTheQueueIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a adder
		c := a.combiner(1)
		for range 10 { // their calls are used again
			begin(t.Context(), c, "b", 1)
		}
		time.Sleep(10 * latency)
		begin(t.Context(), c, "b", 1)
		time.Sleep(latency)
		a.requests = nil
		ctx, cancel := context.WithCancel(t.Context())
		inFlight := begin(ctx, c, "a", 1)
		queued := begin(ctx, c, "a", 10)
		other := begin(t.Context(), c, "a", 100)
		cancel()
		require.Equal(t, added{0, true, context.Canceled}, <-inFlight, "it may be counted")
		require.Equal(t, added{0, false, context.Canceled}, <-queued)
		require.Equal(t, added{101, true, nil}, <-other)
		require.Equal(t, added{0, false, context.Canceled}, add(ctx, c, "a", 0))
		require.Equal(t, [][]addition{{{key: "a", n: 1}}, {{key: "a", n: 100}}}, a.requests)

		// If all are canceled, no request is made.
		ctx, cancel = context.WithCancel(t.Context())
		inFlight, queued = begin(t.Context(), c, "a", 1), begin(ctx, c, "a", 1)
		cancel()
		<-inFlight
		<-queued
		synctest.Wait()
		require.Len(t, a.requests, 3)
	})
}

// The first call is alone, the second one makes a request while that is in flight, and the third one is queued.
func TestABoundEndsCallsWhereverTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a adder
		c := a.combiner(2)
		bound := deadline.New(latency / 2)
		begun := time.Now()
		var all []<-chan added
		for range 3 {
			all = append(all, begin(bound.Context(context.Background()), c, "a", 1))
		}
		for i, done := range all {
			require.Equal(t, added{0, i < 2, context.DeadlineExceeded}, <-done)
			require.Equal(t, latency/2, time.Since(begun))
		}
		time.Sleep(latency)
		synctest.Wait()
		require.EqualValues(t, 2, a.counts["a"])
	})
}

func TestAnsweredCallBelongsToItsCallerThoughTheContextHasEnded(t *testing.T) {
	c := new(adder).combiner(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select chooses at random
		sent, err := coalesce.WaitAnswered(ctx, c)
		require.True(t, sent)
		require.NoError(t, err)
	}
}

func TestHitsAmongCanceledOnesAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a adder
		c := a.combiner(1)
		first := begin(t.Context(), c, "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var rest []<-chan added
		for i := range 200 {
			begin(ctx, c, "a", 1)
			if i%50 == 0 {
				rest = append(rest, begin(t.Context(), c, "b", 1))
			}
		}
		cancel()
		synctest.Wait()
		require.LessOrEqual(t, coalesce.QueueLen(c, 0), 100, "canceled hits do not fill the queue")
		require.Equal(t, added{1, true, nil}, <-first)
		for i, done := range rest {
			require.Equal(t, added{uint64(i + 1), true, nil}, <-done)
		}
		require.Equal(t, [][]addition{{{key: "a", n: 1}}, {{key: "b", n: 1}, {key: "b", n: 1}, {key: "b", n: 1}, {key: "b", n: 1}}}, a.requests)
	})
}

func TestRequestHasTheValuesOfTheFirstHitsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type name struct{}
		var a adder
		c := a.combiner(1)
		with := func(ctx context.Context, value int) context.Context { return context.WithValue(ctx, name{}, value) }
		done := []<-chan added{
			begin(with(context.Background(), 1), c, "a", 1), begin(with(t.Context(), 2), c, "a", 1), begin(with(t.Context(), 3), c, "a", 1),
		}
		for _, d := range done {
			require.NoError(t, (<-d).err)
		}
		require.Len(t, a.ctxs, 2)
		for i, ctx := range a.ctxs {
			require.Equal(t, i+1, ctx.Value(name{}))
			require.Nil(t, ctx.Done(), "the end of a hit's context does not end the request of others")
		}
	})
}

func TestQueuedHitsOfAllPartitionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a adder
		c := coalesce.NewCombiner(coalesce.CombinerOptions[addition]{Send: a.add, Partitions: 2, MaxSize: 10, MaxInFlight: 1, MaxQueued: 1})
		ctx, cancel := context.WithCancel(t.Context())
		do := func(partition int) {
			go addOfSize(ctx, c, partition, "a", 1, 1)
			synctest.Wait()
		}
		do(0)
		do(1)
		do(0) // is queued
		require.Equal(t, added{0, false, window.ErrOverloaded}, addOfSize(t.Context(), c, 1, "a", 1, 1))
		cancel()
		synctest.Wait()
		require.Zero(t, coalesce.QueueLen(c, 0), "a hit that is canceled leaves the queue")
		require.NoError(t, addOfSize(t.Context(), c, 1, "a", 1, 1).err)
	})
}

// A call that takes more than all that a request may have has one of its own.
func TestSizesOfCallsBoundRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a adder
		c := a.combiner(1)
		done := []<-chan added{begin(t.Context(), c, "a", 1)}
		for _, size := range []int{60, 40, 1, 101, 1} {
			d := make(chan added, 1)
			go func() { d <- addOfSize(t.Context(), c, 0, "a", 1, size) }()
			synctest.Wait()
			done = append(done, d)
		}
		for i, d := range done {
			require.Equal(t, added{uint64(i + 1), true, nil}, <-d)
		}
		var sizes []int
		for _, r := range a.requests {
			sizes = append(sizes, len(r))
		}
		require.Equal(t, []int{1, 2, 1, 1, 1}, sizes)
	})
}

// The goroutines run in real time, with contexts that end at any moment.
func TestCountsOfCombinerAreDistinct(t *testing.T) {
	a := adder{noWait: true}
	c := a.combiner(3)
	const goroutines, hits = 16, 2000
	keys := []string{"a", "b", "c"}
	counts := make([]map[uint64]bool, len(keys))
	for i := range counts {
		counts[i] = map[uint64]bool{}
	}
	var mu sync.Mutex
	var uncertain int
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range hits {
				ctx, cancel := context.Background(), context.CancelFunc(func() {})
				if i%3 > 0 {
					ctx, cancel = context.WithCancel(ctx)
				}
				if i%3 == 2 {
					go cancel()
				}
				k := (g + i) % len(keys)
				got := add(ctx, c, keys[k], 1)
				cancel()
				mu.Lock()
				switch {
				case got.err == nil && counts[k][got.count]:
					t.Errorf("two hits have the count %d", got.count)
				case got.err == nil:
					counts[k][got.count] = true
				case !errors.Is(got.err, context.Canceled):
					t.Error(got.err)
				case got.sent:
					uncertain++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var stored, known uint64
	require.Eventually(t, func() bool { // requests of hits that were canceled may be under way
		a.mu.Lock()
		defer a.mu.Unlock()
		stored, known = 0, 0
		for i, key := range keys {
			stored, known = stored+a.counts[key], known+uint64(len(counts[i]))
		}
		return stored == known+uint64(uncertain)
	}, 10*time.Second, time.Millisecond, "%d are stored, %d known and %d uncertain", stored, known, uncertain)
}
