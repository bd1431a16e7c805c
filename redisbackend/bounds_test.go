package redisbackend_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

func TestCountsAreExactUpToMaxCountAndStopAboveIt(t *testing.T) {
	b := redisbackend.New(startServer(t).connect())
	const most = redisbackend.MaxCount
	for _, step := range []struct{ add, want uint64 }{
		{most - 2, most - 2}, {1, most - 1}, {1, most}, {1, most + 1}, {1, most + 1}, {most, most + 1}, {0, most + 1},
	} {
		w, err := b.Hit(t.Context(), "k", time.Hour, most, step.add)
		if err != nil || w.Count != step.want {
			t.Fatalf("adding %d: %+v, %v, want count %d", step.add, w, err, step.want)
		}
		if got, err := b.Get(t.Context(), "k", time.Hour); err != nil || got.Count != step.want {
			t.Fatalf("after adding %d: %+v, %v, want count %d", step.add, got, err, step.want)
		}
	}
	if w, err := b.Set(t.Context(), "k", time.Hour, most); err != nil || w.Count != most {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestNumbersOverMaxCountAreErrors(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	for _, over := range []uint64{redisbackend.MaxCount + 1, math.MaxUint64} {
		_, hitLimit := b.Hit(t.Context(), "k", time.Hour, over, 1)
		_, hitIncrement := b.Hit(t.Context(), "k", time.Hour, 1, over)
		_, inc := b.Inc(t.Context(), "k", time.Hour, over)
		_, set := b.Set(t.Context(), "k", time.Hour, over)
		for what, err := range map[string]error{
			"hit limit": hitLimit, "hit increment": hitIncrement, "inc increment": inc, "set count": set,
		} {
			method, name, _ := strings.Cut(what, " ")
			prefix, suffix := fmt.Sprintf("rediswindow: %s %q: ", method, "k"), fmt.Sprintf(": %s %d is over 2^53-1", name, over)
			if !isMistake(err, redisbackend.ErrRange, window.ErrRange) || !strings.HasPrefix(err.Error(), prefix) || !strings.HasSuffix(err.Error(), suffix) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	for _, now := range []time.Time{{}, time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)} {
		b := redisbackend.New(client, redisbackend.WithClock(func() time.Time { return now }))
		_, hit := b.Hit(t.Context(), "k", time.Hour, 1, 1)
		_, get := b.Get(t.Context(), "k", time.Hour)
		_, del := b.Delete(t.Context(), "k")
		for _, err := range []error{hit, get, del} {
			if !isMistake(err, redisbackend.ErrRange, window.ErrRange) {
				t.Errorf("at %v: %v", now, err)
			}
		}
	}
	if w, err := b.Get(t.Context(), "k", time.Hour); err != nil || w != (window.Window{}) {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestInvalidScalesAreErrors(t *testing.T) {
	const unit, fraction, tooLong = "did you forget the unit?", "not a whole number of microseconds", "more than 1250999h"
	b := redisbackend.New(startServer(t).connect())
	for scale, text := range map[time.Duration]string{
		0: unit, -time.Second: unit, 1: unit, 60: unit, time.Microsecond: unit, time.Millisecond - time.Microsecond: unit,
		time.Millisecond + 1: fraction, time.Second + 999: fraction,
		redisbackend.MaxScale + time.Microsecond: tooLong, math.MaxInt64 / 1000 * 1000: tooLong, math.MaxInt64: fraction,
	} {
		_, hit := b.Hit(t.Context(), "k", scale, 1, 1)
		_, inc := b.Inc(t.Context(), "k", scale, 1)
		_, get := b.Get(t.Context(), "k", scale)
		_, set := b.Set(t.Context(), "k", scale, 1)
		_, del := b.Delete(t.Context(), "k", time.Second, scale)
		for what, err := range map[string]error{"hit": hit, "inc": inc, "get": get, "set": set, "reset": b.Reset(t.Context(), "k", scale), "delete": del} {
			prefix := fmt.Sprintf("rediswindow: %s %q: ", what, "k")
			if !isMistake(err, redisbackend.ErrScale, window.ErrScale) || !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v: %s: %v", scale, what, err)
			}
		}
	}
	for _, scale := range []time.Duration{time.Millisecond, redisbackend.MaxScale} {
		w, err := b.Inc(t.Context(), "k", scale, 1)
		if err != nil || w.Count != 1 || w.Left != scale || w.ExpiresAt.Sub(w.StartedAt) != scale {
			t.Errorf("%v: %+v, %v", scale, w, err)
		}
	}
}

// isMistake reports whether err matches both the error of this package and that of package window.
func isMistake(err, own, common error) bool { return errors.Is(err, own) && errors.Is(err, common) }

func TestAlignedWindowsStartAtMultiplesOfTheScale(t *testing.T) {
	client := startServer(t).connect()
	var now time.Time
	b := redisbackend.New(client, redisbackend.WithAlgorithm(window.Aligned), redisbackend.WithClock(func() time.Time { return now }))
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 2000 {
		scale := time.Millisecond + time.Duration(random.Int64N(1<<(1+random.IntN(51))))*time.Microsecond
		now = time.UnixMicro(random.Int64N(1<<52) - 1<<51)
		if i%2 == 0 { // at the start of a window, or 1 µs before it
			now = window.Aligned.Start(now, scale).Add(-time.Duration(random.IntN(2)) * time.Microsecond)
		}
		w, err := b.Set(t.Context(), "k", scale, 1)
		if err != nil {
			t.Fatal(err)
		}
		if want := window.Aligned.Start(now, scale); !w.StartedAt.Equal(want) || w.Left != want.Add(scale).Sub(now) {
			t.Fatalf("at %v, a window of %v starts at %v, want %v", now, scale, w.StartedAt, want)
		}
	}
}

func TestForeignDataIsAnError(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	redis(t, client, "SET", "throttr:{k:string}", "1")
	redis(t, client, "HSET", "throttr:{k:field}", "60000000", "1")
	for key, want := range map[string]string{"string": "WRONGTYPE", "field": "not a window: 1"} {
		_, hit := b.Hit(t.Context(), key, time.Minute, 1, 1)
		_, get := b.Get(t.Context(), key, time.Minute)
		_, del := b.Delete(t.Context(), key)
		for what, err := range map[string]error{"hit": hit, "get": get, "delete": del} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("rediswindow: %s %q: ", what, key)) {
				t.Errorf("%v", err)
			}
		}
	}
	// Set replaces it.
	if w, err := b.Set(t.Context(), "field", time.Minute, 5); err != nil || w.Count != 5 {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestCheckRefusesWhatHitsRefuse(t *testing.T) {
	b := redisbackend.New(startServer(t).connect())
	for _, c := range []struct {
		scale time.Duration
		limit uint64
		want  error
	}{
		{time.Minute, 100, nil}, {time.Minute, redisbackend.MaxCount, nil}, {time.Minute, redisbackend.MaxCount + 1, redisbackend.ErrRange},
		{60, 5, redisbackend.ErrScale}, {time.Millisecond + 1, 5, redisbackend.ErrScale}, {redisbackend.MaxScale + time.Second, 5, redisbackend.ErrScale},
	} {
		_, hit := b.Hit(t.Context(), "k", c.scale, c.limit, 1)
		if checked := b.Check(c.scale, c.limit); !errors.Is(checked, c.want) || !errors.Is(hit, c.want) {
			t.Errorf("%d in %v: Check returns %v, Hit %v, want %v", c.limit, c.scale, checked, hit, c.want)
		}
	}
}
