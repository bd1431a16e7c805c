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
		return []int64{0, 0, 0, 0, 0, 0, 0}, nil
	}
	id, err := int64(0), error(nil)
	if len(args) > 5 { // of a window
		id, err = strconv.ParseInt(args[5], 10, 64)
	}
	return []int64{1, 0, 1, 0, 0, id, 0}, err
}

func (c *stalledClient) Eval(context.Context, string, []string, []string) ([]int64, error) {
	panic("not called")
}

func (c *stalledClient) Ping(context.Context) error {
	c.wait("")
	return nil
}

func (c *stalledClient) Cluster() (bool, error) { return c.cluster, nil }

func (c *stalledClient) Name() string { return "redis.test" }

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
var calls = map[string]func(ctx context.Context, b *Backend, key string) error{
	"take": func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Take(ctx, key, perHour, 1)
		return err
	},
	"hit of a rolling algorithm": func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Hit(ctx, key, limitOf(window.TokenBucket, time.Hour, 1), 1)
		return err
	},
	"peek": func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Peek(ctx, key, limitOf(window.SlidingLog, time.Hour, 1), 1)
		return err
	},
	"charge of a rolling algorithm": func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Charge(ctx, key, limitOf(window.SlidingWindow, time.Hour, 1), 1)
		return err
	},
	"give back": func(ctx context.Context, b *Backend, key string) error {
		_, err := b.GiveBack(ctx, key, perHour, 1, 1)
		return err
	},
	"set": func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Set(ctx, key, perHour, 1)
		return err
	},
	"reset": func(ctx context.Context, b *Backend, key string) error { return b.Reset(ctx, key, perHour) },
	"delete": func(ctx context.Context, b *Backend, key string) error {
		_, err := b.Delete(ctx, key)
		return err
	},
	"ping": func(ctx context.Context, b *Backend, _ string) error { return b.Ping(ctx) },
}

var perHour = limitOf(window.FixedWindow, time.Hour, 1)

// Callers that give up leave a bounded number of requests behind. Those that were not sent by then never
// are.
func TestCallsInFlightAreBoundedWhileRedisDoesNotRespond(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newStalled()
				defer c.thaw()
				b := New(c)
				before := runtime.NumGoroutine()
				for range 5 {
					var all sync.WaitGroup
					for range maxCalls {
						all.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
							defer cancel()
							assert.ErrorIs(t, call(ctx, b, "k"), context.DeadlineExceeded)
						})
					}
					all.Wait()
				}
				synctest.Wait()
				require.Equal(t, maxCalls, c.requests())
				require.LessOrEqual(t, runtime.NumGoroutine()-before, 2*maxCalls) // some are about to end

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				require.ErrorContains(t, call(ctx, b, "k"), "it was not sent")

				c.thaw()
				synctest.Wait()
				require.Equal(t, maxCalls, c.requests())
				_ = call(t.Context(), b, "k") // the client returns nothing of use
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
			_, err := b.Take(ctx, "k", perHour, 1)
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, maxCalls+2*queued)
		for range maxCalls + queued {
			go func() { results <- take(ctx) }()
		}
		synctest.Wait()
		require.ErrorIs(t, take(t.Context()), window.ErrOverloaded)
		require.Equal(t, maxCalls, c.requests())

		// Those that give up leave the queue.
		cancel()
		synctest.Wait()
		require.Len(t, results, maxCalls+queued)
		for range queued {
			go func() { results <- take(t.Context()) }()
		}
		synctest.Wait()
		require.ErrorIs(t, take(t.Context()), window.ErrOverloaded)
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
			go b.Peek(t.Context(), "first", perHour, 0)
		}
		synctest.Wait()
		var want []string
		for i := range 20 {
			key := strconv.Itoa(i)
			ctx, cancel := context.WithCancel(t.Context())
			go b.Peek(ctx, key, perHour, 0)
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
		half := func(key string) bool { return rangeOf(b.name(key)) < slotRanges/2 }
		c.stalls = func(name string) bool { return rangeOf(name) < slotRanges/2 }
		ranges := map[int]bool{}
		for i := range 20_000 {
			if key := fmt.Sprint(i); half(key) {
				go b.Take(t.Context(), key, perHour, 1)
			}
		}
		synctest.Wait()
		require.Equal(t, slotRanges/2*maxCalls, c.requests())
		for i := range 2000 {
			key := fmt.Sprint(i)
			if half(key) {
				continue
			}
			_, err := b.Take(t.Context(), key, perHour, 1)
			require.NoError(t, err)
			require.Equal(t, int(slotOf(hashTag(key)))*slotRanges/slots, rangeOf(b.name(key)))
			ranges[rangeOf(b.name(key))] = true
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
		limits := []window.Take{perHour.For(last, 1), perHour.For(first, 1)}
		ok, err := b.TakeAll(ctx, limits, make([]window.Window, 2))
		require.False(t, ok)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(begun))
		c.thaw()
		synctest.Wait()
		require.Equal(t, []string{b.name(first), b.name(last), b.name(first)}, c.sent)
	})
}
