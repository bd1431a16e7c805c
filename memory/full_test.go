package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// An attacker makes up a million keys. Whatever calls come, no key gets more than its limit.
func TestNoKeyGetsMoreThanItsLimitWhenTheMemoryIsFull(t *testing.T) {
	const limit = 5
	calls := 60_000
	if race.Enabled { // which has nothing to find in one goroutine
		calls /= 5
	}
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			clock := backendtest.NewClock()
			b := newBackend(t, clock, memory.WithMaxKeys(3000))
			granted := map[string]int{}
			all := 0
			for i := range calls {
				key := fmt.Sprint("made up ", i/10)
				if i%4 == 0 {
					key = fmt.Sprint("again ", i%1000)
				}
				ok, err := takeOne(t, b, i, key, limitOf(a, time.Hour, limit))
				require.NoError(t, err)
				if ok {
					granted[key]++
					all++
				}
			}
			for key, n := range granted {
				require.LessOrEqual(t, n, limit, key)
			}
			require.GreaterOrEqual(t, all, 3000, "keys that are stored get what they may have")
			require.LessOrEqual(t, b.Len(), 3000)
		})
	}
}

// takeOne takes 1 for a key in a way that depends on i.
func takeOne(t *testing.T, b *memory.Backend, i int, key string, l window.Limit) (granted bool, err error) {
	var w window.Window
	switch i % 4 {
	case 0:
		w, err = b.Take(t.Context(), key, l, 1)
		granted = !w.Refused
	case 1:
		w, err = b.Take(t.Context(), key, l, 1)
		granted = !w.Refused
	case 2:
		granted, err = b.TakeAll(t.Context(), []window.Take{l.For(key, 1)}, make([]window.Window, 1))
	default:
		w, err = b.Hit(t.Context(), key, l, 1)
		granted = !w.Refused && w.Count <= l.Max
	}
	return granted, err
}

// A key without a window is denied until there is room, which no policy turns into a grant. Other keys are not affected.
func TestAFullMemoryRefusesNewKeys(t *testing.T) {
	for _, a := range everyAlgorithm {
		t.Run(a.String(), func(t *testing.T) {
			clock := backendtest.NewClock()
			b := newBackend(t, clock, memory.WithMaxKeys(2), memory.WithCleanPeriod(time.Hour))
			c := caller{t, b, a}
			l := limitOf(a, time.Minute, 10)
			c.hit("a", time.Minute)
			c.hit("b", time.Minute)
			full := window.Window{Count: 10, Refused: true, RetryAfter: time.Hour}
			require.Equal(t, full, c.hit("new", time.Minute))
			w, err := b.Take(t.Context(), "new", l, 1)
			require.NoError(t, err)
			require.Equal(t, full, w)
			w, err = b.Peek(t.Context(), "new", l, 1)
			require.NoError(t, err)
			require.Equal(t, full, w)
			w, err = b.Take(t.Context(), "new", l, 0)
			require.NoError(t, err)
			require.Zero(t, w)
			windows := make([]window.Window, 2)
			granted, err := b.TakeAll(t.Context(), []window.Take{l.For("a", 1), l.For("new", 1)}, windows)
			require.NoError(t, err)
			require.False(t, granted)
			require.Equal(t, full, windows[1])
			require.EqualValues(t, 1, c.get("a", time.Minute).Count, "nothing was taken")
			granted, err = b.TakeAll(t.Context(), []window.Take{l.For("new", 0)}, windows[:1])
			require.NoError(t, err)
			require.True(t, granted)
			require.Zero(t, windows[0])
			_, err = b.Charge(t.Context(), "new", l, 1)
			require.ErrorIs(t, err, window.ErrFull)
			_, err = b.Set(t.Context(), "new", l, 1)
			require.ErrorIs(t, err, window.ErrFull)
			require.EqualError(t, err, `memory: set "new": store is full: at most 2 windows`)
			require.Zero(t, c.get("new", time.Minute))
			require.NoError(t, b.Reset(t.Context(), "new", l))

			require.EqualValues(t, 2, c.hit("a", time.Minute).Count)
			require.NoError(t, b.Reset(t.Context(), "b", l))
			granted, err = b.TakeAll(t.Context(), []window.Take{l.For("new", 1), l.For("newer", 1)}, windows)
			require.NoError(t, err)
			require.False(t, granted, "there is room for one of them")
			require.Equal(t, 1, b.Len())
			c.hit("b", time.Minute)
			clock.Advance(2*time.Minute - 1)
			c.set("a", time.Minute, 1)
			clock.Advance(1)
			granted, err = b.TakeAll(t.Context(), []window.Take{l.For("a", 1)}, windows[:1])
			require.NoError(t, err)
			require.True(t, granted)
			require.Equal(t, 2, b.Len(), "what needs no room makes none")
			clock.Advance(2 * time.Minute)
			granted, err = b.TakeAll(t.Context(), []window.Take{l.For("new", 1), l.For("newer", 1)}, windows)
			require.NoError(t, err)
			require.True(t, granted, "the others are over")
			require.LessOrEqual(t, b.Len(), 2)
		})
	}
}

// When there is room is not known: a wait asks again, whatever its deadline is.
func TestAWaitGoesOnWhenTheMemoryIsFull(t *testing.T) {
	for _, a := range everyAlgorithm {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New(memory.WithMaxKeys(1))
			defer b.Close()
			limiter := throttr.NewRateLimit(b)
			l := limitOf(a, time.Second, 10)
			_, err := limiter.Take(t.Context(), "a", l, 1)
			require.NoError(t, err)
			res, err := limiter.Peek(t.Context(), "new", l, 1)
			require.NoError(t, err)
			require.False(t, res.Allowed)
			require.Zero(t, res.Remaining)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun := time.Now()
			_, err = limiter.Wait(ctx, "new", l, 1)
			require.NoError(t, err)
			require.Less(t, time.Since(begun), 3*time.Second)
		})
	}
}
