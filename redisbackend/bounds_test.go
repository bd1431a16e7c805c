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
	for _, over := range []uint64{rediswindow.MaxCount + 1, math.MaxUint64} {
		_, hitLimit := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, over), 1)
		_, hitIncrement := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 1), over)
		_, charge := b.Charge(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, rediswindow.MaxCount), over)
		_, set := b.Set(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, rediswindow.MaxCount), over)
		for what, err := range map[string]error{
			"hit Max": hitLimit, "hit N": hitIncrement, "charge N": charge, "set N": set,
		} {
			method, name, _ := strings.Cut(what, " ")
			prefix, text := fmt.Sprintf("rediswindow: %s %q: ", method, "k"), fmt.Sprintf(": %s %d is out of range: it may be at most 2^", name, over)
			expect(t, errors.Is(err, window.ErrRange) && strings.HasPrefix(err.Error(), prefix) && strings.Contains(err.Error(), text), "%s: %v", what, err)
		}
	}
	for _, now := range []time.Time{{}, time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)} {
		b := redisbackend.New(client, rediswindow.WithClock(func() time.Time { return now }))
		_, hit := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 1), 1)
		_, peek := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 0)
		for _, err := range []error{hit, peek} {
			expect(t, errors.Is(err, window.ErrRange), "at %v: %v", now, err)
		}
	}
	if w, err := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 0); err != nil || w != (window.Window{}) {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestInvalidScalesAreErrors(t *testing.T) {
	const unit, fraction, tooLong = "did you forget the unit?", "not a whole number of microseconds", "more than 1250999h"
	b := redisbackend.New(startServer(t).connect())
	for scale, text := range map[time.Duration]string{
		0: unit, -time.Second: unit, 1: unit, 60: unit, time.Microsecond: unit, time.Millisecond - time.Microsecond: unit,
		time.Millisecond + 1: fraction, time.Second + 999: fraction,
		rediswindow.MaxScale + time.Microsecond: tooLong, window.MaxScale / 1000 * 1000: tooLong, math.MaxInt64: "146 years",
	} {
		_, err := b.Check(limitOf(window.FixedWindow, scale, 1))
		expect(t, errors.Is(err, window.ErrScale), "%v: Check returns %v", scale, err)
		_, hit := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, scale, 1), 1)
		_, charge := b.Charge(t.Context(), "k", limitOf(window.FixedWindow, scale, 1), 1)
		_, peek := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, scale, 1), 0)
		_, set := b.Set(t.Context(), "k", limitOf(window.FixedWindow, scale, 1), 1)
		_, del := b.Delete(t.Context(), "k", time.Second, scale)
		for what, err := range map[string]error{"hit": hit, "charge": charge, "peek": peek, "set": set, "reset": b.Reset(t.Context(), "k", limitOf(window.FixedWindow, scale, 1)), "delete": del} {
			prefix := fmt.Sprintf("rediswindow: %s %q: ", what, "k")
			if !errors.Is(err, window.ErrScale) || !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v: %s: %v", scale, what, err)
			}
		}
	}
	for _, scale := range []time.Duration{time.Millisecond, rediswindow.MaxScale} {
		w, err := b.Charge(t.Context(), "k", limitOf(window.FixedWindow, scale, 1), 1)
		expect(t, err == nil && w.Count == 1 && w.Left == scale && time.Until(w.ExpiresAt) <= scale, "%v: %+v, %v", scale, w, err)
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

func TestForeignDataIsAnError(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	redis(t, client, "SET", "throttr:{k:string}:v2", "1")
	redis(t, client, "HSET", "throttr:{k:field}:v2", "f60000000", "1")
	for key, want := range map[string]string{"string": "WRONGTYPE", "field": "not a window"} {
		_, hit := b.Hit(t.Context(), key, limitOf(window.FixedWindow, time.Minute, 1), 1)
		_, peek := b.Peek(t.Context(), key, limitOf(window.FixedWindow, time.Minute, 1), 0)
		errs := map[string]error{"hit": hit, "peek": peek}
		if key == "string" {
			_, errs["delete"] = b.Delete(t.Context(), key)
		}
		for what, err := range errs {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("rediswindow: %s %q: ", what, key)) {
				t.Errorf("%v", err)
			}
		}
	}
	// Set replaces it.
	if w, err := b.Set(t.Context(), "field", limitOf(window.FixedWindow, time.Minute, 1), 5); err != nil || w.Count != 5 {
		t.Errorf("%+v, %v", w, err)
	}
}
