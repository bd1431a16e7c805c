package rediswindow

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// fakeClient is a client of a Redis that grants everything, and does not respond to requests on some keys before
// goOn receives.
type fakeClient struct {
	cluster bool
	proxy   bool // refuses requests on several keys
	stalls  func(key string) bool
	goOn    chan struct{}
	thaw    func()                     // closes goOn
	refuse  string                     // the key of takes that are not granted
	answer  func(answer string) string // changes an answer

	mu   sync.Mutex
	sent [][]string // the keys of each request; those of a ping are nil
}

func newFake() *fakeClient {
	goOn := make(chan struct{})
	return &fakeClient{
		stalls: func(string) bool { return true }, goOn: goOn, thaw: sync.OnceFunc(func() { close(goOn) }),
		answer: func(answer string) string { return answer },
	}
}

func (c *fakeClient) EvalSHA(_ context.Context, _ string, keys, args []string) (string, error) {
	c.wait(keys)
	if c.proxy && slices.ContainsFunc(keys, func(key string) bool { return key != keys[0] }) {
		return "", errors.New("CROSSSLOT Keys in request don't hash to the same slot")
	}
	var fits, values []byte
	for calls := args[0][24:]; calls != ""; {
		m, size := calls[0], max(1, int(calls[1]))
		for w := range size {
			k, policy := calls[2+2*w]-1, args[calls[3+2*w]]
			if verb(policy[0]) == take && keys[k] == c.refuse {
				m = 0
			}
			fits = append(fits, m)
			text := strings.IndexByte(policy[42:], 0)
			switch letter := policy[1]; {
			case verb(policy[0]) == deleteAll:
				values = append(values, make([]byte, 8)...)
			case verb(policy[0]) == back || verb(policy[0]) == reset:
			case letter == 'f':
				values = append(appendFloat(appendFloat(values, 1), 0), args[0][16:24]...)
			case letter == 'b':
				values = append(values, make([]byte, 50+text)...)
			default:
				values = append(values, make([]byte, 32)...)
			}
		}
		calls = calls[2+2*size:]
	}
	return c.answer(string(make([]byte, 8)) + string(fits) + string(values)), nil
}

func (c *fakeClient) Eval(context.Context, string, []string, []string) (string, error) {
	panic("not called")
}

func (c *fakeClient) Ping(context.Context) error {
	c.wait(nil)
	return nil
}

func (c *fakeClient) Cluster() (bool, error) { return c.cluster, nil }

func (c *fakeClient) Name() string { return "redis.test" }

func (c *fakeClient) wait(keys []string) {
	c.mu.Lock()
	c.sent = append(c.sent, slices.Clone(keys))
	c.mu.Unlock()
	if keys == nil || c.stalls(keys[0]) {
		<-c.goOn
	}
}

// requests returns the keys of the requests that were sent.
func (c *fakeClient) requests() [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// limitOf returns a limit without a name.
func limitOf(a window.Algorithm, max uint64) window.Limit {
	return window.Limit{Max: max, Scale: time.Hour, Algorithm: a}
}

var (
	fixed  = limitOf(window.FixedWindow, 1)
	bucket = limitOf(window.TokenBucket, 1)
)

// calls are all calls of a backend.
var calls = map[string]func(ctx context.Context, b *Backend, key string) error{
	"hit":                func(ctx context.Context, b *Backend, key string) error { return err(b.Hit(ctx, key, fixed, 1)) },
	"take":               func(ctx context.Context, b *Backend, key string) error { return err(b.Take(ctx, key, fixed, 1)) },
	"take of a bucket":   func(ctx context.Context, b *Backend, key string) error { return err(b.Take(ctx, key, bucket, 1)) },
	"charge of a bucket": func(ctx context.Context, b *Backend, key string) error { return err(b.Charge(ctx, key, bucket, 1)) },
	"peek": func(ctx context.Context, b *Backend, key string) error {
		return err(b.Peek(ctx, key, limitOf(window.SlidingLog, 1), 1))
	},
	"set": func(ctx context.Context, b *Backend, key string) error {
		return err(b.Set(ctx, key, limitOf(window.SlidingWindow, 1), 1))
	},
	"take all": func(ctx context.Context, b *Backend, key string) error {
		return err(b.TakeAll(ctx, []window.Take{fixed.For(key, 1), bucket.For(key, 1)}, make([]window.Window, 2)))
	},
	"give back": func(ctx context.Context, b *Backend, key string) error { return err(b.GiveBack(ctx, key, fixed, 1, 1)) },
	"reset":     func(ctx context.Context, b *Backend, key string) error { return b.Reset(ctx, key, fixed) },
	"delete":    func(ctx context.Context, b *Backend, key string) error { return err(b.Delete(ctx, key)) },
	"ping":      func(ctx context.Context, b *Backend, _ string) error { return b.Ping(ctx) },
}

func err[R any](_ R, err error) error { return err }

// Callers that give up leave a bounded number of requests behind. Those that were not sent by then never are, and
// their errors say so.
func TestCallsInFlightAreBoundedWhileRedisDoesNotRespond(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				defer c.thaw()
				b := New(c)
				for range 3 * maxInFlight {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					sent := len(c.requests()) < maxInFlight
					err := call(ctx, b, "k")
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, sent, !strings.HasSuffix(err.Error(), "it was not sent"), err.Error())
				}
				require.Len(t, c.requests(), maxInFlight)
				c.thaw()
				synctest.Wait()
				require.Len(t, c.requests(), maxInFlight)
				require.NoError(t, call(t.Context(), b, "k"))
				require.Len(t, c.requests(), maxInFlight+1)
			})
		})
	}
}

// occupy begins as many requests as can be in flight.
func occupy(b *Backend, key string) {
	for range maxInFlight {
		go b.Peek(context.Background(), key, fixed, 0)
		synctest.Wait()
	}
}

func TestCallsAreRefusedIfTooManyAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queued = 3
		c := newFake()
		defer c.thaw()
		b := New(c, WithMaxQueued(queued))
		occupy(b, "k")
		for range 2 { // those that give up leave the queue
			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error, queued)
			for range queued {
				go func() { errs <- err(b.Take(ctx, "k", fixed, 1)) }()
			}
			synctest.Wait()
			require.ErrorIs(t, err(b.Take(t.Context(), "k", bucket, 1)), window.ErrOverloaded)
			cancel()
			for range queued {
				require.ErrorIs(t, <-errs, context.Canceled)
			}
		}
		c.thaw()
		require.NoError(t, err(b.Take(t.Context(), "k", fixed, 1)))
		require.Len(t, c.requests(), maxInFlight+1)
	})
	require.Panics(t, func() { WithMaxQueued(-1) })
}

// whileOccupied makes calls on keys while as many requests are in flight as can be. It returns the keys of their own
// requests, in order.
func whileOccupied(t *testing.T, c *fakeClient, keys ...string) (requests [][]string) {
	b := New(c, WithPrefix(""))
	occupy(b, keys[0])
	var all sync.WaitGroup
	for name, call := range calls {
		for _, key := range keys {
			if name != "ping" {
				all.Go(func() { assert.NoError(t, call(context.Background(), b, key), name) })
			}
		}
	}
	synctest.Wait()
	require.Len(t, c.requests(), maxInFlight)
	c.thaw()
	all.Wait()
	requests = c.requests()[maxInFlight:]
	for _, keys := range requests {
		slices.Sort(keys)
	}
	slices.SortFunc(requests, slices.Compare)
	return requests
}

func TestCallsThatWaitShareARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, [][]string{{"{k:a}:v1", "{k:b}:v1"}}, whileOccupied(t, newFake(), "a", "b"))
	})
}

// oneSlot are keys that share a slot by chance.
var oneSlot = []string{"key 28", "key 2406"}

func TestCallsOnSeveralKeysOfASlotHaveRequestsOfTheirOwn(t *testing.T) {
	require.Equal(t, slotOfKey(oneSlot[0]), slotOfKey(oneSlot[1]))
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.cluster = true
		require.Equal(t, [][]string{{"{k:key 2406}:v1"}, {"{k:key 28}:v1"}}, whileOccupied(t, c, oneSlot...))
	})
}

func TestCallsBehindAProxyHaveRequestsOfTheirOwnKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.proxy = true
		require.Equal(t, [][]string{{"{k:a}:v1"}, {"{k:a}:v1", "{k:b}:v1"}, {"{k:b}:v1"}}, whileOccupied(t, c, "a", "b"))
	})
}

// A node of a cluster that does not respond holds up no calls on other slots.
func TestStalledNodeHoldsUpItsOwnSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		defer c.thaw()
		c.cluster = true
		c.stalls = func(name string) bool { return strings.Contains(name, "{k:stalled") }
		b := New(c)
		for i := range 100 {
			occupy(b, fmt.Sprint("stalled ", i))
		}
		for i := range 1000 {
			require.NoError(t, err(b.Take(t.Context(), fmt.Sprint(i), fixed, 1)))
		}
	})
}

// If a node refuses a take, what another one has granted is given back. The caller does not wait for that
// longer than its ctx lasts.
func TestTakesOfSeveralSlotsReturnInTimeAndAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		defer c.thaw()
		c.cluster = true
		b := New(c, WithPrefix(""))
		first, last := "{k:a}:v1", "{k:b}:v1" // requests are made in the order of the keys
		c.refuse = last
		granted := false
		c.stalls = func(name string) bool { // the give-back
			stalls := granted && name == first
			granted = true
			return stalls
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begun := time.Now()
		ok, err := b.TakeAll(ctx, []window.Take{fixed.For("b", 1), fixed.For("a", 1)}, make([]window.Window, 2))
		require.False(t, ok)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(begun))
		c.thaw()
		synctest.Wait()
		require.Equal(t, [][]string{{first}, {last}, {first}}, c.requests())
	})
}

// More takes than a request can have are made in several.
func TestManyTakesAreMadeInSeveralRequests(t *testing.T) {
	c := newFake()
	c.thaw()
	var takes []window.Take
	for i := range 2*maxLimits + 1 {
		takes = append(takes, fixed.For(fmt.Sprint(i), 1))
	}
	windows := make([]window.Window, len(takes))
	ok, err := New(c).TakeAll(t.Context(), takes, windows)
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, c.requests(), 3)
	for _, w := range windows {
		require.Equal(t, uint64(1), w.Count)
	}
}

// Whatever a server responds, a call returns.
func FuzzResponses(f *testing.F) {
	f.Add(uint(0), []byte{})
	f.Add(uint(8), []byte{failedByte, 255, 'x'})
	f.Add(uint(8), []byte{failedByte})
	f.Add(uint(9), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, keep uint, other []byte) {
		c := newFake()
		c.thaw()
		c.answer = func(answer string) string { return answer[:min(keep, uint(len(answer)))] + string(other) }
		b := New(c)
		for _, call := range calls {
			_ = call(context.Background(), b, "k")
		}
	})
}

func TestShortResponsesAreErrors(t *testing.T) {
	c := newFake()
	c.thaw()
	b := New(c)
	for name, call := range calls {
		if name == "ping" {
			continue
		}
		for _, change := range []func(string) string{
			func(s string) string { return s[:len(s)-1] }, func(s string) string { return s + "x" }, func(string) string { return "" },
		} {
			c.answer = change
			require.ErrorContains(t, call(t.Context(), b, "k"), "script returned", name)
		}
	}
}
