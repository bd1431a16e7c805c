package memory

import (
	"crypto/sha256"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

func TestLargestBoundsDoNotOverflow(t *testing.T) {
	for _, o := range []Overflow{Share, Evict} {
		b := New(WithMaxKeys(1000), WithMaxTimes(math.MaxInt), WithOverflow(o))
		require.Positive(t, b.shards[0].log.most) // otherwise the hit does not return
		_, err := b.Hit(t.Context(), "a", LimitOf(window.SlidingLog, time.Minute, 100), 1)
		require.NoError(t, err)
		require.NoError(t, b.Close())
	}
	require.Positive(t, optionsOf([]Option{WithMaxKeys(math.MaxInt)}).maxTimes)
}

func TestTimeOfTokensDoesNotOverflow(t *testing.T) {
	now := time.Now()
	b := New(WithClock(func() time.Time { return now }))
	defer b.Close()
	const scale = 7 * time.Millisecond
	_, err := b.Charge(t.Context(), "a", LimitOf(window.TokenBucket, scale, 4_000_000), 10540996613548315209>>1) // takes about 2^63 ns
	require.NoError(t, err)
	w, err := b.Hit(t.Context(), "a", LimitOf(window.TokenBucket, scale, 4_000_000), 1)
	require.NoError(t, err)
	require.True(t, w.Refused)

	require.EqualValues(t, uint64(math.MaxUint64), level{start: 1}.used(0, 18446725626983924632, time.Millisecond))
}

// A new log has no times. A sample must not take it for one that is over, as it is about to have some.
func TestNewLogIsNotTheOneThatIsRemoved(t *testing.T) {
	now := time.Now()
	b := New(WithClock(func() time.Time { return now }), WithMaxKeys(10), WithMaxLog(7),
		WithMaxTimes(1), WithOverflow(Evict))
	defer b.Close()
	hit := func(key string) {
		_, err := b.Hit(t.Context(), key, LimitOf(window.SlidingLog, 100*time.Second, 7), 1)
		require.NoError(t, err)
	}
	now = now.Add(time.Hour)
	hit("a")
	now = now.Add(30 * time.Second)
	for range 6 {
		hit("a")
	}
	now = now.Add(70 * time.Second)
	hit("a")
	before := b.shards[0].generation
	hit("b")
	require.LessOrEqual(t, b.shards[0].generation-before, uint32(2), "it was removed and inserted again")
}

// The process stops between the readings of the two clocks: the time of day is 10 s old.
func TestPauseBetweenTheReadingsOfTheClocksIsNoticed(t *testing.T) {
	b := New()
	defer b.Close()
	readings := 0
	b.clock.read = func() time.Time {
		if readings++; readings > 1 {
			return time.Now()
		}
		time.Sleep(2 * time.Millisecond)
		now, old := time.Now(), time.Now().Add(-10*time.Second)
		*(*uint64)(unsafe.Pointer(&now)) = *(*uint64)(unsafe.Pointer(&old)) // the time of day, not the monotonic time
		return now
	}
	now, _ := b.clock.readBoth()
	require.Greater(t, readings, 1)
	require.InDelta(t, float64(time.Now().Round(0).Sub(b.clock.origin)), float64(now), float64(5*time.Second))
	require.InDelta(t, 0, float64(b.clock.reference.Load().ahead), float64(5*time.Second))
}

// A sweep takes time in proportion to the number of windows, so a full shard makes one only after a pause.
func TestFullShardIsNotSweptForEveryNewKey(t *testing.T) {
	now := time.Now()
	b := New(WithClock(func() time.Time { return now }), WithMaxKeys(1000))
	defer b.Close()
	s := &b.shards[0]
	hit := func(i int) {
		_, err := b.Hit(t.Context(), strconv.Itoa(i), LimitOf(window.FixedWindow, time.Hour+time.Duration(i), 10), 1)
		require.NoError(t, err)
	}
	// mayBeOver makes the shard believe that a window may be over.
	mayBeOver := func() { s.firstEnd = math.MinInt64 }
	for i := range 1000 {
		hit(i)
	}
	mayBeOver()
	hit(1001)
	require.Positive(t, s.firstEnd, "a sweep sets it")
	mayBeOver()
	now = now.Add(1000*sweepPause - 1)
	hit(1002)
	require.Negative(t, s.firstEnd, "there was no sweep")
	now = now.Add(1)
	hit(1003)
	require.Positive(t, s.firstEnd)
}

// Windows that start in the future are over when the clock is set back by more than a scale. They make room,
// although the last sweep was in the future, too.
func TestWindowsThatAClockSetBackEndsMakeRoom(t *testing.T) {
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow, window.TokenBucket, window.SlidingWindow, window.SlidingLog} {
		now := time.Unix(1_000_000_000, 0)
		b := New(WithClock(func() time.Time { return now }), WithMaxKeys(100))
		for i := range 200 {
			_, err := b.Hit(t.Context(), strconv.Itoa(i), LimitOf(a, time.Minute, 10), 1)
			require.NoError(t, err)
		}
		now = now.Add(-24 * time.Hour)
		for i := range 100 {
			key := "new" + strconv.Itoa(i)
			_, err := b.Hit(t.Context(), key, LimitOf(a, time.Minute, 10), 1)
			require.NoError(t, err)
			require.False(t, b.Shares(key, LimitOf(a, time.Minute, 10)), "%v, %d", a, i)
		}
		require.NoError(t, b.Close())
	}
}

// Nobody can make up a short key that equals the hash of a long one: the hash has a secret.
func TestHashOfALongKeyIsASecretOfTheBackend(t *testing.T) {
	long := strings.Repeat("k", maxKey+1)
	seen := map[string]bool{}
	for range 3 {
		b := New()
		_, k := locate(b, long, LimitOf(window.FixedWindow, time.Minute, 10))
		_, again := locate(b, long, LimitOf(window.FixedWindow, time.Minute, 10))
		require.Equal(t, k, again)
		require.Len(t, k.key, sha256.Size)
		require.False(t, seen[k.key], "another backend has another one")
		seen[k.key] = true
		_, short := locate(b, strings.Repeat("k", maxKey), LimitOf(window.FixedWindow, time.Minute, 10))
		require.Len(t, short.key, maxKey)
		require.NoError(t, b.Close())
	}
}

// A give-back can end a window earlier. Its place is free then, without waiting for the end that it had before.
func TestWindowThatAGiveBackEndsMakesRoom(t *testing.T) {
	for _, a := range []window.Algorithm{window.TokenBucket, window.SlidingWindow, window.SlidingLog} {
		now := time.Unix(1_000_000_000, 0)
		b := New(WithClock(func() time.Time { return now }), WithMaxKeys(1))
		w, err := b.Hit(t.Context(), "a", LimitOf(a, time.Minute, 10), 10)
		require.NoError(t, err)
		ok, err := b.GiveBack(t.Context(), "a", LimitOf(a, time.Minute, 10), 10, w.ID)
		require.NoError(t, err)
		require.True(t, ok)
		now = now.Add(time.Second)
		_, err = b.Hit(t.Context(), "b", LimitOf(a, time.Minute, 10), 1)
		require.NoError(t, err)
		require.False(t, b.Shares("b", LimitOf(a, time.Minute, 10)), "%v", a)
		require.NoError(t, b.Close())
	}
}

// A call that needs no lock of the shard may use a bucket between the look at it and its removal.
func TestABucketThatIsUsedAfterItWasSampledStays(t *testing.T) {
	now := time.Unix(1000, 0)
	b := New(WithClock(func() time.Time { return now }), WithMaxKeys(1))
	defer b.Close()
	l := LimitOf(window.TokenBucket, time.Second, 1)
	w, err := b.Take(t.Context(), "k", l, 1)
	require.NoError(t, err)
	require.False(t, w.Refused)
	now = now.Add(time.Second)

	s, _ := locate(b, "k", l)
	s.mu.Lock()
	at, ref := s.now(b)
	victim, over := s.sample(at, ref)
	used, err := Decide(b, t.Context(), false, "k", l, 1)
	dropped := s.dropSampled(victim, over, at, ref)
	s.mu.Unlock()
	require.True(t, over)
	require.NoError(t, err)
	require.False(t, used.Refused)
	require.False(t, dropped)

	w, err = b.Take(t.Context(), "k", l, 1)
	require.NoError(t, err)
	require.True(t, w.Refused)
}
