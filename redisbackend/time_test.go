package redisbackend_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// startOf returns when a window that opens now starts.
func startOf(a window.Algorithm, now time.Time, scale time.Duration) time.Time {
	if a == window.AlignedWindow {
		return limits.AlignedStart(now, scale)
	}
	return now
}

// The test waits in real time, because the clock of the server is real.
func TestWindowsEndByTheClockOfTheServerAndAreRemoved(t *testing.T) {
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			client := startServer(t).connect()
			b := redisbackend.New(client)
			const scale = 300 * time.Millisecond
			opened := 0
			var last window.Window
			for opened < 5 {
				before := time.Now().Truncate(time.Microsecond)
				w := must(t, b.Hit, "k", limitOf(a, scale, 1), 1)
				now := w.ExpiresAt.Add(-w.Left) // The server, on the same machine, has the same clock.
				expect(t, !now.Before(before) && !now.After(time.Now()) && w.Left > 0 && w.Left <= scale, "%+v at %v", w, before)
				if w.Count == 1 {
					opened++
					expect(t, !now.Before(last.ExpiresAt) && w.ExpiresAt.Equal(startOf(a, now, scale).Add(scale)), "%+v follows on %+v", w, last)
				} else if w.Count != last.Count+1 || !w.ExpiresAt.Equal(last.ExpiresAt) || !now.Before(w.ExpiresAt) {
					t.Fatalf("%+v follows on %+v", w, last)
				}
				last = w
			}
			for deadline := last.ExpiresAt.Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
				n, err := redis(t, client, "DBSIZE").AsInt64()
				expect(t, err == nil && !time.Now().After(deadline), "%d keys are left, %v", n, err)
				if n == 0 {
					return
				}
			}
		})
	}
}

func TestHashExpiresAfterItsLastWindow(t *testing.T) {
	client := startServer(t).connect()
	b := redisbackend.New(client)
	for _, step := range []struct {
		scale, want time.Duration
	}{
		{time.Minute, time.Minute}, {time.Hour, time.Hour}, {time.Second, time.Hour}, {time.Minute, time.Hour}, {3 * time.Hour, 3 * time.Hour},
	} {
		must(t, b.Set, "k", limitOf(window.FixedWindow, step.scale, 10), 1)
		ms, err := redis(t, client, "PTTL", "throttr:{k:k}:v2").AsInt64()
		left := time.Duration(ms) * time.Millisecond
		if err != nil || left < step.want-10*time.Second || left > step.want+2*time.Second {
			t.Errorf("after a window of %v the hash expires in %v, want %v (%v)", step.scale, left, step.want, err)
		}
	}
}

func TestFieldsOfEndedWindowsAreRemoved(t *testing.T) {
	client := startServer(t).connect()
	clock := backendtest.NewClock()
	b := redisbackend.New(client, rediswindow.WithClock(clock.Now))
	must(t, b.Set, "k", limitOf(window.FixedWindow, time.Hour, 10), 7)
	for i := range 1000 {
		must(t, b.Charge, "k", limitOf(window.FixedWindow, time.Millisecond+time.Duration(i)*time.Microsecond, 10), 1)
		clock.Advance(time.Millisecond)
		if n, err := redis(t, client, "HLEN", "throttr:{k:k}:v2").AsInt64(); err != nil || n > 17 {
			t.Fatalf("there are %d fields, %v", n, err)
		}
	}
	if w, err := b.Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 10), 0); err != nil || w.Count != 7 {
		t.Errorf("%+v, %v", w, err)
	}

	// The fields of active windows are not removed.
	clock.Advance(time.Second)
	for i := range 1000 {
		must(t, b.Charge, "k", limitOf(window.FixedWindow, time.Hour+time.Duration(i)*time.Second, 10), 1)
	}
	if n, err := b.Delete(t.Context(), "k"); err != nil || n != 1000 {
		t.Errorf("%d windows were deleted, want 1000 (%v)", n, err)
	}
	if n, err := redis(t, client, "DBSIZE").AsInt64(); err != nil || n != 0 {
		t.Errorf("there are %d keys, %v", n, err)
	}

	for i := range 200 {
		day := window.Limit{Name: strconv.Itoa(i), Max: 10, Calendar: window.Day, Algorithm: window.CalendarWindow}
		must(t, b.Charge, "k", day, 1)
		clock.Advance(24 * time.Hour)
		if n, err := redis(t, client, "HLEN", "throttr:{k:k}:v2").AsInt64(); err != nil || n > 17 {
			t.Fatalf("there are %d fields of days, %v", n, err)
		}
	}
}

func TestDeleteAcceptsManyScales(t *testing.T) {
	b := redisbackend.New(startServer(t).connect())
	var scales []time.Duration
	for i := range 20_000 {
		scales = append(scales, time.Hour+time.Duration(i)*time.Second)
	}
	scales = append(scales, scales[:10]...) // A scale that is given twice counts once.
	for _, scale := range scales[:50] {
		must(t, b.Charge, "k", limitOf(window.FixedWindow, scale, 10), 1)
	}
	if n, err := b.Delete(t.Context(), "k", scales...); err != nil || n != 50 {
		t.Errorf("%d windows were deleted, want 50 (%v)", n, err)
	}
	if _, err := b.Delete(t.Context(), "other", scales...); err != nil {
		t.Error(err)
	}
}
