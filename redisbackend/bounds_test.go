package redisbackend_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

func TestNumbersOverMaxCountAreErrors(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	most := limitOf(window.FixedWindow, time.Hour, rediswindow.MaxCount)
	for _, over := range []uint64{rediswindow.MaxCount + 1, math.MaxUint64} {
		for what, err := range map[string]error{
			"hit Max":  errorOf(b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, over), 1)),
			"hit N":    errorOf(b.Hit(t.Context(), "k", most, over)),
			"charge N": errorOf(b.Charge(t.Context(), "k", most, over)),
			"set N":    errorOf(b.Set(t.Context(), "k", most, over)),
		} {
			method, name, _ := strings.Cut(what, " ")
			prefix, text := fmt.Sprintf("rediswindow: %s %q: ", method, "k"), fmt.Sprintf(": %s %d is out of range: it may be at most 2^", name, over)
			expect(t, errors.Is(err, window.ErrRange) && strings.HasPrefix(err.Error(), prefix) && strings.Contains(err.Error(), text), "%s: %v", what, err)
		}
	}
	for _, now := range []time.Time{{}, time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)} {
		b := redisbackend.New(client, rediswindow.WithClock(func() time.Time { return now }))
		err := errorOf(b.Hit(t.Context(), "k", most, 1))
		expect(t, errors.Is(err, window.ErrRange), "at %v: %v", now, err)
	}
	w := must(t, b.Peek, "k", most, 0)
	expect(t, w == window.Window{}, "%+v", w)
}

func TestInvalidScalesAreErrors(t *testing.T) {
	const unit, fraction, tooLong = "did you forget the unit?", "not a whole number of microseconds", "more than 1250999h"
	b := redisbackend.New(startServer(t).connect())
	for scale, text := range map[time.Duration]string{
		0: unit, -time.Second: unit, 1: unit, time.Millisecond - time.Microsecond: unit, time.Millisecond + 1: fraction, time.Second + 999: fraction,
		rediswindow.MaxScale + time.Microsecond: tooLong, window.MaxScale / 1000 * 1000: tooLong, math.MaxInt64: "146 years",
	} {
		l := limitOf(window.FixedWindow, scale, 1)
		for what, err := range map[string]error{
			"": errorOf(b.Check(l)), "hit": errorOf(b.Hit(t.Context(), "k", l, 1)), "reset": b.Reset(t.Context(), "k", l),
			"delete": errorOf(b.Delete(t.Context(), "k", time.Second, scale)),
		} {
			expect(t, errors.Is(err, window.ErrScale) && strings.HasPrefix(err.Error(), "rediswindow: "+what) && strings.Contains(err.Error(), text), "%v: %s: %v", scale, what, err)
		}
	}
	for _, scale := range []time.Duration{time.Millisecond, rediswindow.MaxScale} {
		w := must(t, b.Charge, "k", limitOf(window.FixedWindow, scale, 1), 1)
		expect(t, w.Count == 1 && w.Left == scale && time.Until(w.ExpiresAt) <= scale, "%v: %+v", scale, w)
	}
}

func TestAlignedWindowsStartAtMultiplesOfTheScale(t *testing.T) {
	client := startServer(t).connect()
	var now time.Time
	b := redisbackend.New(client, rediswindow.WithClock(func() time.Time { return now }))
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 2000 {
		scale := time.Millisecond + time.Duration(random.Int64N(1<<(1+random.IntN(51))))*time.Microsecond
		now = time.UnixMicro(random.Int64N(1<<52) - 1<<51)
		if i%2 == 0 { // at the start of a window, or 1 µs before it
			now = limits.AlignedStart(now, scale).Add(-time.Duration(random.IntN(2)) * time.Microsecond)
		}
		w := must(t, b.Set, "k", limitOf(window.AlignedWindow, scale, 10), 1)
		if want := limits.AlignedStart(now, scale).Add(scale); !w.ExpiresAt.Equal(want) || w.Left != want.Sub(now) {
			t.Fatalf("at %v, a window of %v ends at %v, want %v", now, scale, w.ExpiresAt, want)
		}
	}
}
