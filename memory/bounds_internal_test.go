package memory

import (
	"math"
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
