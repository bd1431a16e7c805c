package throttr_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// A Cancel that is deferred gives nothing back after a Commit that was a mistake.
func TestCommitThatIsAMistakeSettlesAsReserved(t *testing.T) {
	for name, limiter := range limiters(t) {
		t.Run(name, func(t *testing.T) {
			rv := reserve(t, limiter,
				throttr.Limit{Max: 10, Scale: time.Minute}.For("requests", 1),
				throttr.Limit{Max: 1000, Scale: time.Minute}.For("tokens", 400))
			err := rv.Commit(t.Context(), []uint64{0, 0, 0}[:1+2*rand.IntN(2)]...) // one number or three
			require.ErrorIs(t, err, throttr.ErrConfig)
			require.ErrorContains(t, err, "settled as reserved")
			require.NoError(t, rv.Cancel(t.Context()))
			require.NoError(t, rv.Commit(t.Context(), 0, 0))
			require.EqualValues(t, 1, count(t, limiter, "requests", time.Minute))
			require.EqualValues(t, 400, count(t, limiter, "tokens", time.Minute))
		})
	}
}

func TestCommitThatIsOutOfRangeSettlesAsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := testkit.Limiter[uint16](t, testkit.InMemory(t))
		rv := reserve(t, limiter,
			throttr.Limit{Max: 10, Scale: time.Minute}.For("requests", 5),
			throttr.Limit{Max: 1000, Scale: time.Minute}.For("tokens", 400))
		err := rv.Commit(t.Context(), 1, 1<<63)
		require.ErrorIs(t, err, throttr.ErrRange)
		require.ErrorContains(t, err, "settled as reserved")
		require.NoError(t, rv.Cancel(t.Context()))
		require.EqualValues(t, 5, count(t, limiter, "requests", time.Minute))
		require.EqualValues(t, 400, count(t, limiter, "tokens", time.Minute))
	})
}

// partlySilent is a backend that does not respond to what settles some keys.
type partlySilent struct {
	*memory.Backend
	silent map[string]bool
}

func (b *partlySilent) GiveBack(ctx context.Context, key string, l throttr.Limit, n uint64, id int64) (bool, error) {
	if b.silent[key] {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return b.Backend.GiveBack(ctx, key, l, n, id)
}

func TestLimitsAreSettledEvenIfOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &partlySilent{memory.New(memory.WithClock(time.Now)), map[string]bool{"a": true, "c": true}}
		defer b.Close()
		var seen []string
		limiter := throttr.NewRateLimit(b, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventSettled {
				seen = append(seen, e.Key)
			}
		}))
		var takes []throttr.Take
		for _, key := range []string{"a", "b", "c", "d"} {
			takes = append(takes, throttr.Limit{Max: 10, Scale: time.Hour}.For(key, 5))
		}
		rv := reserve(t, limiter, takes...)
		begun := time.Now()
		require.ErrorIs(t, rv.Cancel(t.Context()), context.DeadlineExceeded)
		require.Equal(t, 250*time.Millisecond, time.Since(begun), "all are settled at the same time")
		require.Equal(t, []string{"a", "b", "c", "d"}, seen)
		for key, left := range map[string]uint64{"a": 5, "b": 0, "c": 5, "d": 0} {
			require.Equal(t, left, count(t, limiter, key, time.Hour), key)
		}
	})
}

func TestTakesOfOneCountAreSettledTogether(t *testing.T) {
	b, _ := newMemory(t)
	limiter := throttr.NewRateLimit(b)
	limit := throttr.Limit{Max: 10, Scale: time.Hour}
	for _, c := range []struct{ first, second, left uint64 }{{2, 3, 5}, {4, 4, 8}, {9, 0, 9}, {0, 7, 7}, {6, 6, 12}, {math.MaxInt64, math.MaxInt64, math.MaxInt64}} {
		rv := reserve(t, limiter, limit.For("k", 4), limit.For("k", 4))
		require.NoError(t, rv.Commit(t.Context(), c.first, c.second))
		require.Equal(t, c.left, count(t, limiter, "k", time.Hour))
		require.NoError(t, limiter.Reset(t.Context(), "k", time.Hour))
	}
}

// panicking is a backend that panics when it gives back, and takes of the key "panic".
type panicking struct{ throttr.Backend }

func (panicking) GiveBack(context.Context, string, throttr.Limit, uint64, int64) (bool, error) {
	panic("give back")
}

func (p panicking) Take(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	if key == "panic" {
		panic("take")
	}
	return p.Backend.Take(ctx, key, l, n)
}

// What panics in a goroutine would end the program. Its caller may recover it, as HTTP servers do.
func TestAPanicIsTheCallers(t *testing.T) {
	b, _ := newMemory(t)
	limiter := throttr.NewRateLimit(panicking{b})
	limit := throttr.Limit{Max: 10, Scale: time.Hour}
	shadow := throttr.Limit{Max: 10, Scale: time.Hour, Shadow: true}
	rv := reserve(t, limiter, limit.For("a", 5), limit.For("b", 5))
	require.PanicsWithValue(t, "give back", func() { rv.Cancel(t.Context()) })
	require.PanicsWithValue(t, "take", func() {
		limiter.TakeAll(t.Context(), limit.For("c", 5), shadow.For("d", 1), shadow.For("panic", 1))
	})
	require.EqualValues(t, 5, count(t, limiter, "c", time.Hour))
}

// Neither a context that has ended nor a closed backend matters to what asks for nothing.
func TestNoTakesAreGrantedAnywhere(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(t *testing.T, b throttr.Backend, closes func() error) {
		for _, ctx := range []context.Context{t.Context(), ended} {
			granted, err := b.TakeAll(ctx, nil, nil)
			require.NoError(t, err)
			require.True(t, granted)
			for _, limiter := range []*throttr.RateLimit{throttr.NewRateLimit(b), throttr.NewRateLimit(b, throttr.WithTimeout(time.Second))} {
				ok, results, err := limiter.TakeAll(ctx)
				require.NoError(t, err)
				require.True(t, ok)
				require.Empty(t, results)
				rv, ok, err := limiter.Reserve(ctx)
				require.NoError(t, err)
				require.True(t, ok)
				require.Empty(t, rv.Results())
				require.NoError(t, rv.Commit(ctx))
			}
			require.NoError(t, closes()) // for the second one
		}
		granted, err := b.TakeAll(t.Context(), nil, nil)
		require.NoError(t, err)
		require.True(t, granted)
	}
	t.Run("memory", func(t *testing.T) {
		b := memory.New()
		check(t, b, b.Close)
	})
	t.Run("servers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			b := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend()
			check(t, b, b.Close)
		})
	})
}

// Windows of different keys have different IDs.
func TestTakesAreGivenBackToTheirOwnWindows(t *testing.T) {
	b, clock := newMemory(t)
	limiter := throttr.NewRateLimit(b)
	limit := throttr.Limit{Max: 10, Scale: time.Minute}
	for n, key := range []string{"first", "second"} {
		_, err := limiter.Take(t.Context(), key, limit, uint64(n+1))
		require.NoError(t, err)
		clock.Advance(10 * time.Second)
	}
	rv := reserve(t, limiter, limit.For("first", 5), limit.For("second", 5))
	require.NoError(t, rv.Commit(t.Context(), 1, 2))
	require.EqualValues(t, 1+1, count(t, limiter, "first", time.Minute))
	require.EqualValues(t, 2+2, count(t, limiter, "second", time.Minute))
}
