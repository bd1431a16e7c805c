package rediswindow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/window"
)

// methods are calls of a backend.
var methods = map[string]func(ctx context.Context, b *Backend, key string) error{
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
	"list": func(ctx context.Context, b *Backend, key string) error {
		for _, err := range b.List(ctx, key) {
			if err != nil {
				return err
			}
		}
		return nil
	},
}

func err[R any](_ R, err error) error { return err }

// occupy has as many requests in flight as may be, so that calls wait.
func occupy(t *testing.T, b *Backend, key string) {
	for range batch.MaxInFlight {
		go b.Peek(t.Context(), key, fixed, 0)
		time.Sleep(patience)
	}
}

// If ctx has ended before the call, the call does nothing. Callers that give up later leave a bounded number of
// requests behind. What was not sent by then never is, and errors say so.
func TestCallsInFlightAreBoundedWhileRedisDoesNotRespond(t *testing.T) {
	for name, call := range methods {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				defer c.thaw()
				b := New(c)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				for range 40 {
					err := errors.Join(call(ended, b, "k"), b.Ping(ended))
					require.Equal(t, 2, strings.Count(err.Error(), "context canceled"))
					require.NotContains(t, err.Error(), "may have been counted")
				}
				require.Zero(t, c.all)
				for range 3 * batch.MaxInFlight {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					sent := len(c.requests()) < batch.MaxInFlight
					err := call(ctx, b, "k")
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, sent, !strings.HasSuffix(err.Error(), "it was not sent"), err.Error())
				}
				require.Len(t, c.requests(), batch.MaxInFlight)
				c.thaw()
				synctest.Wait()
				require.Len(t, c.requests(), batch.MaxInFlight)
				require.NoError(t, call(t.Context(), b, "k"))
				require.Len(t, c.requests(), batch.MaxInFlight+1)
				require.NoError(t, b.Close())
				require.ErrorIs(t, call(t.Context(), b, "k"), window.ErrClosed)
			})
		})
	}
}

func TestCallsAreRefusedIfTooManyAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		defer c.thaw()
		b := New(c, WithMaxQueued(1))
		occupy(t, b, "k")
		go b.Take(t.Context(), "k", fixed, 1)
		synctest.Wait()
		require.ErrorIs(t, err(b.Take(t.Context(), "k", bucket, 1)), window.ErrOverloaded)
	})
	require.Panics(t, func() { WithMaxQueued(-1) })
}

// oneSlot are keys that share a slot by chance.
var oneSlot = []string{"key 28", "key 2406"}

// Calls that wait share a request. In a cluster, each of its keys has a script, whatever is asked of it; behind a
// proxy, each entry whose keys are others, and then each key of a take of several.
func TestCallsThatWaitShareARequest(t *testing.T) {
	require.Equal(t, slotOfKey(oneSlot[0]), slotOfKey(oneSlot[1]))
	for _, test := range []struct {
		cluster, proxy bool
		keys           []string
		want           map[string]int // how many requests there are, by keys
	}{
		{keys: []string{"a", "b"}, want: map[string]int{"{k:a}:v2 {k:b}:v2": 1}},
		{cluster: true, keys: oneSlot, want: map[string]int{"{k:key 2406}:v2": 1, "{k:key 28}:v2": 1}},
		{proxy: true, keys: []string{"a", "b"}, want: map[string]int{"{k:a}:v2": 2, "{k:b}:v2": 2, "{k:a}:v2 {k:b}:v2": 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newFake()
			c.cluster = test.cluster
			c.proxy = test.proxy
			b := New(c, WithPrefix(""))
			if c.cluster {
				b.askForSlots(t.Context())
			}
			occupy(t, b, test.keys[0])
			var all sync.WaitGroup
			for name, call := range methods {
				for _, key := range test.keys {
					if name != "list" && name != "delete" {
						all.Go(func() { assert.NoError(t, call(context.Background(), b, key), name) })
					}
				}
			}
			if c.proxy {
				all.Go(func() {
					takes := []window.Take{fixed.For("a", 1), fixed.For("b", 1)}
					granted, err := b.TakeAll(context.Background(), takes, make([]window.Window, 2))
					assert.True(t, granted && err == nil, err)
				})
			}
			synctest.Wait()
			require.Len(t, c.requests(), batch.MaxInFlight)
			c.thaw()
			all.Wait()
			requests := map[string]int{}
			for _, keys := range c.requests()[batch.MaxInFlight:] {
				slices.Sort(keys)
				requests[strings.Join(slices.Compact(keys), " ")]++
			}
			require.Equal(t, test.want, requests)
		})
	}
}

// If a node refuses a take, what another one has granted is given back. The caller does not wait for that
// longer than its ctx lasts.
func TestTakesOfSeveralSlotsReturnInTimeAndAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, last := "{k:a}:v2", "{k:b}:v2" // requests are made in the order of the keys
		c, b := newCluster(last)
		defer c.thaw()
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
		require.ErrorContains(t, err, `"a"`) // whose node is late
		require.Equal(t, 200*time.Millisecond, time.Since(begun))
		c.thaw()
		synctest.Wait()
		require.Equal(t, [][]string{{first}, {last}, {first}}, c.requests())
	})
}

// Who gives back what has taken nothing would store the limit of a call that was refused.
func TestATakeOfNothingIsNotGivenBack(t *testing.T) {
	c, b := newCluster("{k:b}:v2")
	c.thaw()
	ok, err := b.TakeAll(t.Context(), []window.Take{fixed.For("a", 0), fixed.For("b", 1)},
		make([]window.Window, 2))
	require.NoError(t, err)
	require.False(t, ok)
	require.Len(t, c.text, 3) // two takes, and a look at what was not taken
	require.Equal(t, byte(peek), c.text[2][0])
}

// Takes of several keys in a cluster may share an entry of the first, too. If the second one refuses, each gives back
// the place that it has.
func TestEqualTakesOfSeveralKeysAreGivenBackEachForItself(t *testing.T) {
	for _, takes := range []int{2, 8} {
		synctest.Test(t, func(t *testing.T) {
			c, b := newCluster("{k:b}:v2")
			b.askForSlots(t.Context())
			occupy(t, b, "a")
			var all sync.WaitGroup
			for range takes {
				all.Go(func() {
					both := []window.Take{limitOf(window.TokenBucket, 1000).For("a", 1), fixed.For("b", 1)}
					granted, err := b.TakeAll(context.Background(), both, make([]window.Window, 2))
					assert.True(t, !granted && err == nil, err)
				})
			}
			synctest.Wait()
			c.thaw()
			all.Wait()
			var got, want []string
			for _, text := range c.text {
				if strings.Contains(text, string(undo)) {
					got = append(got, text)
				}
			}
			for i := range takes { // the script has answered with place 7, which is that of the last one
				want = append(want, fmt.Sprintf("0Ub3600000000 1000 %d 1 ", 8-takes+i))
			}
			require.ElementsMatch(t, want, got)
		})
	}
}

// A node has a bound on what it has in flight, and so it stays the same one: while answers come together, and after it
// was none for a while.
func TestANodeThatIsKnownStaysTheSame(t *testing.T) {
	b := New(slowClient{newFake()})
	nodes := make([]*node, 8)
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() {
			b.learn("0 16383 a:1")
			nodes[i] = b.nodeOfSlot(0)
		})
	}
	all.Wait()
	b.learn("0 16383 b:2")
	require.Equal(t, "b:2", b.nodeOfSlot(0).name)
	b.learn("0 16383 a:1")
	for _, n := range nodes {
		require.Same(t, b.nodeOfSlot(0), n)
	}
}

// slowClient is a client with which it takes a while to make a node.
type slowClient struct{ *fakeClient }

func (slowClient) Punctual() bool {
	time.Sleep(10 * time.Millisecond)
	return false
}

// The slots are not known until a node answers that does not hang.
func TestSlotsAreAskedOfSeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newCluster("")
		defer c.thaw()
		var asked atomic.Int64
		c.slots = func() string {
			if asked.Add(1) <= 3 {
				<-c.goOn
			}
			return "0 16383 a:1"
		}
		b.askAt.Store(math.MaxInt64) // so that nobody else asks
		b.askForSlots(t.Context())
		require.Equal(t, "a:1", b.Part("k"))
	})
}

// While all nodes hang, calls ask for the slots one after the other, and nobody does without calls.
func TestSlotsAreAskedForByCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newCluster("")
		defer c.thaw()
		var asked atomic.Int64
		c.slots = func() string {
			asked.Add(1)
			<-c.goOn
			return ""
		}
		for range 3 {
			for range 5 {
				b.nodeOf("{k}")
				time.Sleep(time.Second / 2)
			}
			time.Sleep(time.Minute)
			require.LessOrEqual(t, asked.Swap(0), int64(4))
		}
	})
}

// Requests are made on goroutines of the package, where nobody could recover from a panic of a client.
func TestAPanicOfTheClientIsAnErrorOfTheCalls(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newFake()
			c.cluster = cluster
			c.script = func(string) (string, error) { panic("no client") }
			b := New(c)
			var all sync.WaitGroup
			for name, call := range methods {
				for _, key := range oneSlot {
					all.Go(func() {
						err := call(t.Context(), b, key)
						assert.ErrorContains(t, err, "the client has panicked: no client", name)
						assert.NotErrorIs(t, err, window.ErrUnavailable)
					})
				}
			}
			all.Go(func() { assert.ErrorContains(t, b.Ping(t.Context()), "no client") })
			synctest.Wait()
			c.thaw()
			all.Wait()
			c.script = nil
			require.NoError(t, methods["take"](t.Context(), b, "k"))
		})
	}
}

func TestShortResponsesAreErrors(t *testing.T) {
	c := newFake()
	c.thaw()
	b := New(c)
	for name, call := range methods {
		for _, change := range []func(string) string{
			func(s string) string { return s[:len(s)-1] }, func(s string) string { return s + "x" }, func(string) string { return "" },
		} {
			c.answer = change
			require.ErrorContains(t, call(t.Context(), b, "k"), "script returned", name)
		}
	}
}

func TestNothingThatIsQueuedIsSentAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.script = func(string) (string, error) { return "", errors.New("ERR no") }
		b := New(c)
		var all sync.WaitGroup
		for i := range maxAlone + 1 {
			all.Go(func() {
				if i%2 == 0 {
					b.Ping(context.Background())
					return
				}
				b.Exchange(context.Background(), []window.Claim{{Key: fmt.Sprint(i)}}, make([]window.Places, 1))
			})
		}
		synctest.Wait()
		require.Len(t, c.requests(), maxAlone)
		b.Close()
		c.thaw()
		all.Wait()
		require.Len(t, c.requests(), maxAlone)
	})
}

// With -race: an answer may come at any time after the ctx of its caller has ended.
func TestAnAnswerAfterTheCallIsWrittenToNothingOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.stalls = func(string) bool {
			time.Sleep(20 * time.Millisecond)
			return false
		}
		c.script = func(string) (string, error) { return "late", nil }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		claims := []window.Claim{{Key: "k", Process: "p", Seq: 1, Lease: time.Second, Held: 1, HeldMax: 1}}
		require.ErrorIs(t, New(c).Exchange(ctx, claims, make([]window.Places, 1)), context.DeadlineExceeded)
		time.Sleep(20 * time.Millisecond)
	})
}

// A take does not wait for claims, of which there may be many at a time, and claims are not refused because of takes.
func TestPlacesDoNotHoldUpTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newCluster("", WithMaxQueued(1))
		c.thaw()
		c.script = func(digest string) (string, error) {
			time.Sleep(10 * time.Millisecond)
			if digest == windowsScript.digest {
				return string(make([]byte, answerSize)), nil
			}
			return "", nil
		}
		b.askForSlots(t.Context())
		claims := make([]window.Claim, 64)
		for i := range claims {
			claims[i] = window.Claim{Key: fmt.Sprint(i), Process: "p", Seq: 1, Lease: time.Minute, Held: 1, HeldMax: 1}
		}
		var exchanges sync.WaitGroup
		for range 4 {
			exchanges.Go(func() {
				err := b.Exchange(context.Background(), claims, make([]window.Places, len(claims)))
				require.NotErrorIs(t, err, window.ErrOverloaded)
			})
		}
		time.Sleep(time.Millisecond)
		begun := time.Now()
		_, err := b.Take(t.Context(), "k", fixed, 1)
		require.NoError(t, err)
		require.Equal(t, 10*time.Millisecond, time.Since(begun))
		exchanges.Wait()
	})
}

// Whatever a server sends that is none, such as a proxy, is an error.
func TestAResponseThatIsNoAnswerToClaimsIsAnError(t *testing.T) {
	want := window.Want{N: 1, Max: 5, Wait: true}
	claims := []window.Claim{
		{Process: "p", Seq: 1, Lease: time.Second, Wants: []window.Want{want, {N: 2, Max: 5}, {N: 2, Max: 5}, want}},
		{Process: "p", Seq: 2, Lease: time.Second},
		{},
	}
	var response []byte
	for _, f := range []float64{1e6, 0, 4, 2, 5e5, 0, 1, 9, 2, 10, 0, 0, claimLate, 7, 0, 0, 0, 0, 8, 1, 0, 0} {
		response = appendFloat(response, f)
	}
	places := make([]window.Places, 3)
	require.NoError(t, readPlaces(string(response), claims, places))
	require.Equal(t, []window.Places{
		{Tokens: []uint64{9, 10, 11, 0}, DataSet: 1e6, Used: 4, Waiting: 2, Next: time.Second / 2},
		{Late: true, DataSet: 1e6, Used: 7},
		{DataSet: 1e6, Used: 8, Waiting: 1},
	}, places)
	for end := range len(response) + 2 {
		if end != len(response) {
			err := readPlaces(string(append(response, 0)[:end]), claims, places)
			require.ErrorIs(t, err, window.ErrUnavailable, "%d bytes", end)
			require.Less(t, len(err.Error()), 100)
		}
	}
}

// A call whose claims fail each for itself is one that has failed, of which Stats has the error.
func TestStatsKnowOfClaimsThatFail(t *testing.T) {
	c, b := newCluster("")
	c.thaw()
	require.NoError(t, b.Exchange(t.Context(), nil, nil), "nothing is asked")
	require.Equal(t, window.StoreStats{Name: "redis.test"}, b.Stats().Stores[0])
	c.script = func(string) (string, error) { return "", window.ErrUnavailable }
	require.NoError(t, b.Exchange(t.Context(), []window.Claim{{Key: "a"}, {Key: "b"}}, make([]window.Places, 2)))
	s := b.Stats().Stores[0]
	require.ErrorIs(t, s.Err, window.ErrUnavailable)
	require.Equal(t, []uint64{1, 1}, []uint64{s.Calls, s.Errors})
	wrong := window.Places{Err: errors.New("WRONGTYPE")}
	require.Equal(t, window.ErrUnavailable, firstError([]window.Places{{}, wrong, {Err: window.ErrUnavailable}}))
	require.Equal(t, wrong.Err, firstError([]window.Places{{}, wrong}))
}

// waits has a claim wait in line for a place of "name", and returns how often it was woken since it was asked last.
func waits(b *Backend, answers ...window.Places) (woken func() int) {
	n := 0
	claims := []window.Claim{
		{Process: "p", Lease: time.Minute, Wants: []window.Want{{N: 1, Max: 1, Wait: true}}, Wake: func() { n++ }},
	}
	for _, answer := range answers {
		b.wakes.note(claims, []string{"name"}, []window.Places{answer})
	}
	return func() int {
		defer func() { n = 0 }()
		return n
	}
}

// Another process may give back before the answer to a claim that waits has arrived.
func TestWhoeverWaitsIsWokenAlsoBeforeTheAnswer(t *testing.T) {
	before, after, granted := window.Places{}, window.Places{Tokens: []uint64{0}}, window.Places{Tokens: []uint64{1}}
	synctest.Test(t, func(t *testing.T) {
		b := New(newFake())
		defer b.Close()
		for _, test := range []struct {
			answers []window.Places
			woken   int
		}{{nil, 0}, {[]window.Places{before}, 1}, {[]window.Places{before, after}, 1}, {[]window.Places{before, granted}, 0}} {
			woken := waits(b, test.answers...)
			b.wakes.received("name p")
			b.wakes.received("name q")
			require.Equal(t, test.woken, woken(), test.answers)
		}
		require.False(t, b.wakes.needed())
		synctest.Wait()
		waits(b, before) // and goes without a word
		require.True(t, b.wakes.needed())
		time.Sleep(time.Minute + 1)
		require.False(t, b.wakes.needed())
	})
}

// Messages are lost while there is no subscription, so all who wait ask when it has begun: the first one, and soon the
// next one, unless the last ones have ended soon.
func TestWhoeverWaitsIsWokenWhenASubscriptionHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ends := newFake(), make(chan bool)
		c.subscribe = func(ctx context.Context, received func(string)) error {
			received("")
			select {
			case <-ctx.Done():
				return ctx.Err()
			case panics := <-ends:
				if panics {
					panic("the client has a mistake")
				}
				return errors.New("the connection has ended")
			}
		}
		b := New(c)
		defer b.Close()
		woken := waits(b, window.Places{})
		synctest.Wait()
		require.Equal(t, 1, woken())
		for i := range 10 {
			time.Sleep(2 * time.Second)
			ends <- i%2 == 0
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			require.Equal(t, 1, woken())
		}
		for range 10 {
			ends <- false
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 9, woken())
	})
}
