package rediswindow

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// stalledClient is a client of a Redis that does not respond to commands on some keys before go on. Scripts
// return nothing, and takes are granted unless their key is in refuse.
type stalledClient struct {
	cluster bool
	stalls  func(key string) bool
	goOn    chan struct{}
	thaw    func() // closes goOn
	refuse  string

	mu   sync.Mutex
	sent []string // the key of each command
}

func newStalled() *stalledClient {
	goOn := make(chan struct{})
	return &stalledClient{
		stalls: func(string) bool { return true }, goOn: goOn, thaw: sync.OnceFunc(func() { close(goOn) }),
	}
}

func (c *stalledClient) EvalSHA(_ context.Context, digest string, keys, args []string) ([]int64, error) {
	c.wait(keys[0])
	switch {
	case digest == hitScript.digest:
		return []int64{0, 0, 0, 1}, nil
	case digest != takeScript.digest:
		return nil, nil
	case keys[0] == c.refuse:
		return []int64{0, 0, -1, 0, 0, 0}, nil
	}
	id, err := strconv.ParseInt(args[3], 10, 64)
	return []int64{1, 0, 1, 0, 0, id}, err
}

func (c *stalledClient) Eval(context.Context, string, []string, []string) ([]int64, error) {
	panic("not called")
}

func (c *stalledClient) HDel(_ context.Context, key, _ string) error {
	c.wait(key)
	return nil
}

func (c *stalledClient) Cluster() bool { return c.cluster }

func (c *stalledClient) wait(key string) {
	c.mu.Lock()
	c.sent = append(c.sent, key)
	c.mu.Unlock()
	if c.stalls(key) {
		<-c.goOn
	}
}

// requests returns the number of commands that were sent.
func (c *stalledClient) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sent)
}

// calls are the calls that have requests of their own.
var calls = map[string]struct {
	algorithm window.Algorithm
	make      func(ctx context.Context, b *Backend, key string) error
}{
	"take": {0, func(ctx context.Context, b *Backend, key string) error {
		_, _, err := b.Take(ctx, key, time.Hour, 1, 1)
		return err
	}},
	"hit of a rolling algorithm": {window.TokenBucket, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Hit(ctx, key, time.Hour, 1, 1)
		return err
	}},
	"peek": {window.SlidingLog, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Peek(ctx, key, time.Hour, 1, 1)
		return err
	}},
	"inc of a rolling algorithm": {window.Sliding, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Inc(ctx, key, time.Hour, 1)
		return err
	}},
	"hit alone": {0, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.addAlone(ctx, key, time.Hour, 1)
		return err
	}},
	"give back": {0, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.GiveBack(ctx, key, time.Hour, 1, 1)
		return err
	}},
	"get": {0, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Get(ctx, key, time.Hour)
		return err
	}},
	"set": {0, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Set(ctx, key, time.Hour, 1)
		return err
	}},
	"reset": {0, func(ctx context.Context, b *Backend, key string) error { return b.Reset(ctx, key, time.Hour) }},
	"delete": {0, func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Delete(ctx, key)
		return err
	}},
}

// Callers that give up leave a bounded number of requests behind. Those that were not sent by then never
// are.
func TestCallsInFlightAreBoundedWhileRedisDoesNotRespond(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newStalled()
				defer c.thaw()
				b := New(c, WithAlgorithm(call.algorithm))
				before := runtime.NumGoroutine()
				for range 5 {
					var all sync.WaitGroup
					for range maxCalls {
						all.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
							defer cancel()
							assert.ErrorIs(t, call.make(ctx, b, "k"), context.DeadlineExceeded)
						})
					}
					all.Wait()
				}
				synctest.Wait()
				require.Equal(t, maxCalls, c.requests())
				require.LessOrEqual(t, runtime.NumGoroutine()-before, 2*maxCalls) // some are about to end

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				require.ErrorContains(t, call.make(ctx, b, "k"), "it was not sent")

				c.thaw()
				synctest.Wait()
				require.Equal(t, maxCalls, c.requests())
				_ = call.make(t.Context(), b, "k") // the client returns nothing of use
				require.Greater(t, c.requests(), maxCalls)
			})
		})
	}
}

func TestCallsAreRefusedIfTooManyAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queued = 3
		c := newStalled()
		defer c.thaw()
		b := New(c, WithMaxQueued(queued))
		take := func(ctx context.Context) error {
			_, _, err := b.Take(ctx, "k", time.Hour, 1, 1)
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, maxCalls+2*queued)
		for range maxCalls + queued {
			go func() { results <- take(ctx) }()
		}
		synctest.Wait()
		require.ErrorIs(t, take(t.Context()), ErrOverloaded)
		require.Equal(t, maxCalls, c.requests())

		// Those that give up leave the queue.
		cancel()
		synctest.Wait()
		require.Len(t, results, maxCalls+queued)
		for range queued {
			go func() { results <- take(t.Context()) }()
		}
		synctest.Wait()
		require.ErrorIs(t, take(t.Context()), ErrOverloaded)
		c.thaw()
		synctest.Wait()
		require.Equal(t, maxCalls+queued, c.requests())
		for range maxCalls + queued {
			require.ErrorIs(t, <-results, context.Canceled)
		}
		for range queued {
			require.NoError(t, <-results)
		}
	})
}

func TestQueuedCallsAreSentInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStalled()
		defer c.thaw()
		b := New(c)
		for range maxCalls {
			go b.Get(t.Context(), "first", time.Hour)
		}
		synctest.Wait()
		var want []string
		for i := range 20 {
			key := strconv.Itoa(i)
			ctx, cancel := context.WithCancel(t.Context())
			go b.Get(ctx, key, time.Hour)
			synctest.Wait()
			if i%3 == 0 {
				cancel()
			} else {
				defer cancel()
				want = append(want, b.name(key))
			}
			synctest.Wait()
		}
		for range maxCalls + len(want) { // one response at a time
			c.goOn <- struct{}{}
			synctest.Wait()
		}
		require.Equal(t, want, c.sent[maxCalls:])
	})
}

// A node of a cluster that does not respond holds up no calls on slots far from its own.
func TestStalledNodeHoldsUpItsOwnSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStalled()
		defer c.thaw()
		c.cluster = true
		b := New(c)
		half := func(key string) bool { return b.rangeOf(b.name(key)) < slotRanges/2 }
		c.stalls = func(name string) bool { return b.rangeOf(name) < slotRanges/2 }
		ranges := map[int]bool{}
		for i := range 20_000 {
			if key := fmt.Sprint(i); half(key) {
				go b.Take(t.Context(), key, time.Hour, 1, 1)
			}
		}
		synctest.Wait()
		require.Equal(t, slotRanges/2*maxCalls, c.requests())
		for i := range 2000 {
			key := fmt.Sprint(i)
			if half(key) {
				continue
			}
			_, _, err := b.Take(t.Context(), key, time.Hour, 1, 1)
			require.NoError(t, err)
			require.Equal(t, int(slotOf(hashTag(key)))*slotRanges/slots, b.rangeOf(b.name(key)))
			ranges[b.rangeOf(b.name(key))] = true
		}
		require.Len(t, ranges, slotRanges/2)
		c.thaw()
	})
}

// If a node refuses a take, what another one has granted is given back. The caller does not wait for that
// longer than its ctx lasts.
func TestTakesOfSeveralSlotsReturnInTimeAndAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStalled()
		defer c.thaw()
		c.cluster = true
		b := New(c)
		first, last := "a", "b" // scripts run in the order of the keys
		c.refuse = b.name(last)
		granted := false
		c.stalls = func(name string) bool { // the give-back
			stalls := granted && name == b.name(first)
			granted = true
			return stalls
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begun := time.Now()
		limits := []window.Limit{{Key: last, Scale: time.Hour, Limit: 1, N: 1}, {Key: first, Scale: time.Hour, Limit: 1, N: 1}}
		ok, err := b.TakeAll(ctx, limits, make([]window.Window, 2))
		require.False(t, ok)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(begun))
		c.thaw()
		synctest.Wait()
		require.Equal(t, []string{b.name(first), b.name(last), b.name(first)}, c.sent)
	})
}
