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

// A hash whose scales or names are other ones again and again has few that are over, and all that are not.
func TestFieldsOfEndedWindowsAreRemoved(t *testing.T) {
	fields := func(s *server) int {
		n, err := strconv.Atoi(s.Must(t, "HLEN", "throttr:{k:k}:v2"))
		noError(t, err)
		return n
	}
	each(t, func(t *testing.T, s *server, a window.Algorithm) {
		clock := backendtest.NewClock()
		b := redisbackend.New(s.connect(), rediswindow.WithClock(clock.Now))
		must(t, b.Set, "k", limitOf(a, 100*time.Hour, 10), 7)
		most, few := 0, 250
		if !a.Rolling() { // others are over later than after their scale
			few = 17
		}
		for i := range 1000 {
			w := must(t, b.Hit, "k", limitOf(a, time.Millisecond+time.Duration(i)*time.Microsecond, 10), 1)
			expect(t, w.Count == 1 && !w.Refused, "%+v", w)
			clock.Advance(time.Millisecond)
			most = max(most, fields(s))
		}
		expect(t, most <= few, "there were %d fields", most)
		w := must(t, b.Peek, "k", limitOf(a, 100*time.Hour, 10), 0)
		expect(t, w.Count == 7, "%+v", w)
		clock.Advance(5 * time.Second)
		for i := range 300 {
			must(t, b.Hit, "k", limitOf(a, time.Hour+time.Duration(i)*time.Second, 10), 10)
		}
		n := mustDelete(t, b, "k")
		expect(t, n == 301, "%d windows were deleted", n)
		expect(t, a.Rolling() || len(names(t, s.connect())) == 0, "a hash is left")
	})
	s := startServer(t)
	clock := backendtest.NewClock()
	b := redisbackend.New(s.connect(), rediswindow.WithClock(clock.Now))
	for i := range 200 {
		day := window.Limit{Name: strconv.Itoa(i), Max: 10, Calendar: window.Day, Algorithm: window.CalendarWindow}
		must(t, b.Charge, "k", day, 1)
		clock.Advance(24 * time.Hour)
		expect(t, fields(s) <= 17, "there are %d fields of days", fields(s))
	}
}
