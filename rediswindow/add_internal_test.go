package rediswindow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

// latency is how long a request to a fakeClient takes.
const latency = time.Millisecond

var errBroken = errors.New("WRONGTYPE of a test")

// fakeClient runs the script of hits in memory, on windows that do not end.
type fakeClient struct {
	stalledClient // Cluster, Ping and Name

	mu       sync.Mutex
	counts   map[string]int64 // by key and scale
	broken   string           // the key of a hash that is none
	proxy    bool             // refuses scripts with several keys
	requests [][]string       // the keys of each
}

func newFake(opts ...Option) (*fakeClient, *Backend) {
	c := &fakeClient{counts: map[string]int64{}}
	return c, New(c, opts...)
}

func (c *fakeClient) EvalSHA(_ context.Context, digest string, keys, args []string) ([]int64, error) {
	c.mu.Lock()
	c.requests = append(c.requests, keys)
	c.mu.Unlock()
	switch {
	case digest == countScript.digest && keys[0] == c.broken:
		return nil, errBroken
	case digest != hitScript.digest:
		return nil, errors.ErrUnsupported
	}
	time.Sleep(latency)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxy && slices.ContainsFunc(keys, func(key string) bool { return key != keys[0] }) {
		return nil, errors.New("CROSSSLOT Keys in request don't hash to the same slot")
	}
	numbers := []int64{time.Now().UnixMicro()}
	args = args[3:]
	for i, key := range keys {
		if len(args) > 3 && args[3] == strconv.Itoa(i) {
			args = args[4:]
		}
		if key == c.broken && len(keys) == 1 {
			return nil, errBroken
		}
		if key == c.broken {
			numbers = append(numbers, -1, 0, 0)
			continue
		}
		name := key + " " + args[0]
		n, _ := strconv.ParseInt(args[2], 10, 64)
		if n > MaxCount+1 {
			return nil, fmt.Errorf("the increment %d is not exact in a script", n)
		}
		numbers = append(numbers, c.counts[name], numbers[0], 7)
		c.counts[name] = min(c.counts[name]+n, MaxCount+1)
	}
	return numbers, nil
}

// outcome is the outcome of a hit.
type outcome struct {
	window window.Window
	err    error
}

// limitOf returns a limit without a name.
func limitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: cmp.Or(a, window.FixedWindow)}
}

// begin hits in a goroutine, which it waits to be blocked.
func begin(ctx context.Context, b *Backend, key string, scale time.Duration, n uint64) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		w, err := b.Hit(ctx, key, limitOf(0, scale, 100), n)
		done <- outcome{w, err}
	}()
	synctest.Wait()
	return done
}

// occupy begins as many requests as can be in flight.
func occupy(b *Backend, key string) {
	for range maxInFlight {
		begin(context.Background(), b, key, time.Hour, 1)
	}
}

// requireCounts fails the test if hits do not have these counts.
func requireCounts(t *testing.T, hits []<-chan outcome, counts ...uint64) {
	t.Helper()
	for i, want := range counts {
		got := <-hits[i]
		require.NoError(t, got.err)
		require.Equal(t, want, got.window.Count)
	}
}

func TestHitsThatWaitShareAScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		occupy(b, "other")
		opened := time.Now()
		var hits []<-chan outcome
		for range 3 {
			hits = append(hits, begin(t.Context(), b, "a", time.Second, 1), begin(t.Context(), b, "a", time.Minute, 10), begin(t.Context(), b, "b", time.Second, 100))
		}
		for i, want := range []uint64{1, 10, 100, 2, 20, 200, 3, 30, 300} {
			got := <-hits[i]
			require.NoError(t, got.err)
			scale := []time.Duration{time.Second, time.Minute, time.Second}[i%3]
			now := time.Now()
			require.Equal(t, window.Window{
				Count: want, ExpiresAt: now.Add(scale).Round(0), Left: scale, ID: 7,
			}, utc(got.window, now))
		}
		require.Equal(t, 2*latency, time.Since(opened))
		require.Len(t, c.requests, maxInFlight+1)
		require.Equal(t, []string{"throttr:{k:a}:v1", "throttr:{k:a}:v1", "throttr:{k:b}:v1"}, c.requests[maxInFlight])
	})
}

// utc returns w with the time zone of now.
func utc(w window.Window, now time.Time) window.Window {
	w.ExpiresAt = w.ExpiresAt.In(now.Location())
	return w
}

func TestErrorOfContextTellsWhetherTheHitWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		ctx, cancel := context.WithCancel(t.Context())
		sent := begin(ctx, b, "a", time.Hour, 1)
		for range maxInFlight - 1 {
			begin(t.Context(), b, "a", time.Hour, 1)
		}
		queued := begin(ctx, b, "a", time.Hour, 1)
		cancel()
		err := (<-sent).err
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, `rediswindow: hit "a": context canceled; the hit may have been counted`)
		err = (<-queued).err
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, `rediswindow: hit "a": context canceled; the hit was not counted`)
		time.Sleep(2 * latency)
		c.mu.Lock()
		defer c.mu.Unlock()
		require.Equal(t, map[string]int64{"throttr:{k:a}:v1 f3600000000": maxInFlight}, c.counts)
	})
}

// In a cluster, hits share a script only if they have the same key.
func TestHitsOnOneSlotOfAClusterHaveScriptsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slot, other := slotOf(hashTag("a")), "a"
		for i := 0; other == "a" || slotOf(hashTag(other)) != slot; i++ {
			other = fmt.Sprint(i)
		}
		c, b := newFake()
		c.cluster = true
		occupy(b, "a")
		hits := []<-chan outcome{
			begin(t.Context(), b, "a", time.Hour, 1), begin(t.Context(), b, other, time.Hour, 1), begin(t.Context(), b, "a", time.Hour, 1),
		}
		requireCounts(t, hits, maxInFlight+1, 1, maxInFlight+2)
		require.ElementsMatch(t, [][]string{{"throttr:{k:a}:v1"}, {"throttr:{k:" + other + "}:v1"}}, c.requests[maxInFlight:])

		occupy(b, "a")
		hits = []<-chan outcome{begin(t.Context(), b, "a", time.Second, 1), begin(t.Context(), b, "a", time.Minute, 1)}
		for _, h := range hits {
			require.NoError(t, (<-h).err)
		}
		require.Equal(t, []string{"throttr:{k:a}:v1", "throttr:{k:a}:v1"}, c.requests[len(c.requests)-1], "scales of a key share a script")
	})
}

func TestHitsThatShareAScriptHaveTheirOwnScalesAndIncrements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		occupy(b, "other")
		var hits []<-chan outcome
		all := []struct {
			key   string
			scale time.Duration
			n     uint64
		}{{"a", time.Second, 1}, {"b", time.Second, 1}, {"c", time.Second, 2}, {"d", time.Minute, 2}, {"e", time.Minute, 2}, {"f", time.Second, 1}}
		for _, h := range all {
			hits = append(hits, begin(t.Context(), b, h.key, h.scale, h.n))
		}
		for i, h := range all {
			got := <-hits[i]
			require.NoError(t, got.err)
			require.Equal(t, h.n, got.window.Count)
			require.Equal(t, int64(h.n), c.counts[fmt.Sprintf("throttr:{k:%s}:v1 f%d", h.key, h.scale.Microseconds())], h.key)
		}
		require.Len(t, c.requests, maxInFlight+1)
	})
}

func TestCountsOfSharedScriptsStopAboveMaxCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		c.counts["throttr:{k:a}:v1 f3600000000"] = MaxCount - 1
		occupy(b, "other")
		var hits []<-chan outcome
		for _, n := range []uint64{1, MaxCount, 1, MaxCount, 0} {
			hits = append(hits, begin(t.Context(), b, "a", time.Hour, n))
		}
		for i, hit := range hits {
			got := <-hit
			require.NoError(t, got.err)
			require.EqualValues(t, MaxCount, got.window.Count)
			require.Equal(t, i > 0, got.window.Refused, "the count would have passed the largest")
		}
		require.Len(t, c.requests, maxInFlight+1)
	})
}

func TestWindowThatIsBrokenFailsItsHitsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		c.broken = "throttr:{k:bad}:v1"
		occupy(b, "other")
		bad, good := begin(t.Context(), b, "bad", time.Hour, 1), begin(t.Context(), b, "good", time.Hour, 1)
		require.ErrorIs(t, (<-bad).err, errBroken)
		got := <-good
		require.NoError(t, got.err)
		require.Equal(t, uint64(1), got.window.Count)
		require.Equal(t, [][]string{{"throttr:{k:bad}:v1", "throttr:{k:good}:v1"}, {"throttr:{k:bad}:v1"}}, c.requests[maxInFlight:])
	})
}

func TestHitsBehindAProxyHaveScriptsOfTheirOwnKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		c.proxy = true
		occupy(b, "other")
		var hits []<-chan outcome
		for range 3 {
			hits = append(hits, begin(t.Context(), b, "a", time.Hour, 1), begin(t.Context(), b, "b", time.Hour, 1))
		}
		requireCounts(t, hits, 1, 1, 2, 2, 3, 3)
		require.Len(t, c.requests, maxInFlight+3)
	})
}

func TestScriptsOfASlotDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		c.cluster = true
		var sums []sum
		for i := range 10 {
			sums = append(sums, sum{Key: windowKey{strconv.Itoa(i), "", time.Hour, window.FixedWindow}, N: 1})
		}
		start := time.Now()
		require.NoError(t, b.addAll(t.Context(), sums))
		require.Equal(t, latency, time.Since(start))
		require.Len(t, c.requests, len(sums))
	})
}

func TestMaxQueuedBoundsTheHitsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := newFake(WithMaxQueued(2))
		occupy(b, "a")
		begin(t.Context(), b, "a", time.Hour, 1)
		begin(t.Context(), b, "b", time.Hour, 1)
		_, err := b.Hit(t.Context(), "c", limitOf(0, time.Hour, 100), 1)
		require.ErrorIs(t, err, window.ErrOverloaded)
		time.Sleep(2 * latency)
		_, err = b.Hit(t.Context(), "c", limitOf(0, time.Hour, 100), 1)
		require.NoError(t, err)
	})
	require.Panics(t, func() { WithMaxQueued(-1) })
}

func TestHitsAreRefusedIfTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := newFake()
		few := coalesce.NewCombiner(coalesce.CombinerOptions[windowKey, added]{
			Add: b.addAll, Partitions: 1, MaxHits: 1, MaxInFlight: 1, MaxQueued: 1,
		})
		b.combiner = func() *combiner { return few }
		begin(t.Context(), b, "a", time.Hour, 1)
		begin(t.Context(), b, "a", time.Hour, 1)
		_, err := b.Hit(t.Context(), "a", limitOf(0, time.Hour, 100), 1)
		require.ErrorIs(t, err, window.ErrOverloaded)
		_, err = b.Charge(t.Context(), "a", limitOf(0, time.Hour, 100), 1)
		require.ErrorIs(t, err, window.ErrOverloaded)
		time.Sleep(2 * latency)
		w, err := b.Hit(t.Context(), "a", limitOf(0, time.Hour, 100), 1)
		require.NoError(t, err)
		require.Equal(t, uint64(3), w.Count)
	})
}

func TestWindowThatIsBrokenFailsItsHitsOnlyInACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		c.cluster, c.broken = true, "throttr:{k:bad}:v1"
		sums := []sum{{Key: windowKey{"good", "", time.Hour, window.FixedWindow}, N: 1}, {Key: windowKey{"bad", "", time.Hour, window.FixedWindow}, N: 1}}
		require.NoError(t, b.addAll(t.Context(), sums))
		require.NoError(t, sums[0].Err)
		require.ErrorIs(t, sums[1].Err, errBroken)
	})
}

func TestHitsOnASlotDoNotWaitForThoseOnAnotherOne(t *testing.T) {
	require.NotEqual(t, slotOf(hashTag("a")), slotOf(hashTag("b")))
	synctest.Test(t, func(t *testing.T) {
		c, b := newFake()
		c.cluster = true
		occupy(b, "a")
		start := time.Now()
		require.NoError(t, (<-begin(t.Context(), b, "b", time.Hour, 1)).err)
		require.Equal(t, latency, time.Since(start))
	})
}
