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

// The first call that names the limit of a bucket ends it earlier than the scale. Its place is free then.
func TestBucketThatEndsEarlierMakesRoom(t *testing.T) {
	now := time.Now()
	b := New(WithAlgorithm(window.TokenBucket), WithClock(func() time.Time { return now }), WithMaxKeys(1), WithCleanPeriod(0))
	defer b.Close()
	_, err := b.Inc(t.Context(), "a", time.Minute, 1)
	require.NoError(t, err)
	w, err := b.Hit(t.Context(), "a", time.Minute, 100, 1)
	require.NoError(t, err)
	require.Equal(t, 1200*time.Millisecond, w.Left)
	now = now.Add(2 * time.Second)
	_, err = b.Hit(t.Context(), "b", time.Minute, 100, 1)
	require.NoError(t, err)
}

func TestLargestBoundsDoNotOverflow(t *testing.T) {
	for _, o := range []Overflow{Share, Evict} {
		b := New(WithAlgorithm(window.SlidingLog), WithMaxKeys(1000), WithMaxTimes(math.MaxInt), WithCleanPeriod(0), WithOverflow(o))
		require.Positive(t, b.shards[0].log.most) // otherwise the hit does not return
		_, err := b.Hit(t.Context(), "a", time.Minute, 100, 1)
		require.NoError(t, err)
		require.NoError(t, b.Close())
	}
	b := &Backend{options: options{algorithm: window.SlidingLog, maxKeys: math.MaxInt}}
	b.setBounds()
	require.Positive(t, b.maxTimes)
}

func TestRefusalOfABucketThatHasFilledTellsAWait(t *testing.T) {
	now := time.Now()
	b := New(WithAlgorithm(window.TokenBucket), WithClock(func() time.Time { return now }), WithCleanPeriod(0))
	defer b.Close()
	_, err := b.Inc(t.Context(), "a", time.Minute, 1)
	require.NoError(t, err)
	now = now.Add(10 * time.Second)
	w, err := b.Hit(t.Context(), "a", time.Minute, 100, 101)
	require.NoError(t, err)
	require.True(t, w.Refused)
	require.Equal(t, time.Minute, w.RetryAfter)
}

func TestTimeOfTokensDoesNotOverflow(t *testing.T) {
	now := time.Now()
	b := New(WithAlgorithm(window.TokenBucket), WithClock(func() time.Time { return now }), WithCleanPeriod(0))
	defer b.Close()
	const scale = 7 * time.Millisecond
	_, err := b.Inc(t.Context(), "a", scale, 10540996613548315209) // takes 2^64 ns, less a part of one
	require.NoError(t, err)
	w, err := b.Hit(t.Context(), "a", scale, 4_000_000, 1)
	require.NoError(t, err)
	require.True(t, w.Refused)

	require.EqualValues(t, uint64(math.MaxUint64), level{start: 1}.used(0, 18446725626983924632, time.Millisecond))
}

// A new log has no times. A sample must not take it for one that is over, as it is about to have some.
func TestNewLogIsNotTheOneThatIsRemoved(t *testing.T) {
	now := time.Now()
	b := New(WithAlgorithm(window.SlidingLog), WithClock(func() time.Time { return now }), WithMaxKeys(10), WithMaxLog(7),
		WithMaxTimes(1), WithCleanPeriod(0), WithOverflow(Evict))
	defer b.Close()
	hit := func(key string) {
		_, err := b.Hit(t.Context(), key, 100*time.Second, 7, 1)
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
	b := New(WithAlgorithm(window.Aligned), WithCleanPeriod(0))
	defer b.Close()
	readings := 0
	b.clock = func() time.Time {
		if readings++; readings > 1 {
			return time.Now()
		}
		time.Sleep(2 * time.Millisecond)
		now, old := time.Now(), time.Now().Add(-10*time.Second)
		*(*uint64)(unsafe.Pointer(&now)) = *(*uint64)(unsafe.Pointer(&old)) // the time of day, not the monotonic time
		return now
	}
	s := &b.shards[0]
	now := s.readClock(b)
	require.Greater(t, readings, 1)
	require.InDelta(t, float64(time.Now().Round(0).Sub(b.origin)), float64(now), float64(5*time.Second))
	require.InDelta(t, float64(time.Now().Round(0).Sub(b.origin)), float64(s.now(b)), float64(5*time.Second))
}

// A sweep takes time in proportion to the number of windows, so a full shard makes one only after a pause.
func TestFullShardIsNotSweptForEveryNewKey(t *testing.T) {
	now := time.Now()
	b := New(WithClock(func() time.Time { return now }), WithMaxKeys(1000), WithCleanPeriod(0))
	defer b.Close()
	s := &b.shards[0]
	hit := func(i int) {
		_, err := b.Hit(t.Context(), strconv.Itoa(i), time.Hour+time.Duration(i), 10, 1)
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
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned, window.TokenBucket, window.Sliding, window.SlidingLog} {
		now := time.Unix(1_000_000_000, 0)
		b := New(WithAlgorithm(a), WithClock(func() time.Time { return now }), WithMaxKeys(100), WithCleanPeriod(0))
		for i := range 200 {
			_, err := b.Hit(t.Context(), strconv.Itoa(i), time.Minute, 10, 1)
			require.NoError(t, err)
		}
		now = now.Add(-24 * time.Hour)
		for i := range 100 {
			key := "new" + strconv.Itoa(i)
			_, err := b.Hit(t.Context(), key, time.Minute, 10, 1)
			require.NoError(t, err)
			require.False(t, b.Shares(key, time.Minute), "%v, %d", a, i)
		}
		require.NoError(t, b.Close())
	}
}

// Nobody can make up a short key that equals the hash of a long one: the hash has a secret.
func TestHashOfALongKeyIsASecretOfTheBackend(t *testing.T) {
	long := strings.Repeat("k", maxKey+1)
	seen := map[string]bool{}
	for range 3 {
		b := New(WithCleanPeriod(0))
		_, k := b.locate(long, time.Minute)
		_, again := b.locate(long, time.Minute)
		require.Equal(t, k, again)
		require.Len(t, k.key, sha256.Size)
		require.False(t, seen[k.key], "another backend has another one")
		seen[k.key] = true
		_, short := b.locate(strings.Repeat("k", maxKey), time.Minute)
		require.Len(t, short.key, maxKey)
		require.NoError(t, b.Close())
	}
}

// A give-back can end a window earlier. Its place is free then, without waiting for the end that it had before.
func TestWindowThatAGiveBackEndsMakesRoom(t *testing.T) {
	for _, a := range []window.Algorithm{window.TokenBucket, window.Sliding, window.SlidingLog} {
		now := time.Unix(1_000_000_000, 0)
		b := New(WithAlgorithm(a), WithClock(func() time.Time { return now }), WithMaxKeys(1), WithCleanPeriod(0))
		w, err := b.Hit(t.Context(), "a", time.Minute, 10, 10)
		require.NoError(t, err)
		ok, err := b.GiveBack(t.Context(), "a", time.Minute, w.ID, 10)
		require.NoError(t, err)
		require.True(t, ok)
		now = now.Add(time.Second)
		_, err = b.Hit(t.Context(), "b", time.Minute, 10, 1)
		require.NoError(t, err)
		require.False(t, b.Shares("b", time.Minute), "%v", a)
		require.NoError(t, b.Close())
	}
}
