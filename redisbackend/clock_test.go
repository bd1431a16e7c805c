package redisbackend_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// algorithms are all of them.
var algorithms = append([]window.Algorithm{window.FixedWindow, window.AlignedWindow}, rolling...)

// each runs a test for each algorithm, on an empty server.
func each(t *testing.T, f func(t *testing.T, s *server, a window.Algorithm)) {
	s := startServer(t)
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			s.Must(t, "FLUSHALL")
			f(t, s, a)
		})
	}
}

// A window that starts a scale or more in the future is over, as it is in memory.
func TestWindowsSurviveAClockThatGoesBack(t *testing.T) {
	each(t, func(t *testing.T, s *server, a window.Algorithm) {
		clock := backendtest.NewClock()
		begin := clock.Now()
		b := redisbackend.New(s.connect(), rediswindow.WithClock(clock.Now))
		call := func(key string, take bool) bool {
			t.Helper()
			if !take {
				w := must(t, b.Hit, key, limitOf(a, time.Minute, 10), 1)
				return !w.Refused && w.Count <= 10
			}
			w := must(t, b.Take, key, limitOf(a, time.Minute, 10), 1)
			return !w.Refused
		}
		for _, take := range []bool{false, true} {
			for _, back := range []time.Duration{time.Microsecond, time.Second, 59 * time.Second, time.Minute, 24 * time.Hour} {
				set(clock, begin)
				key := fmt.Sprint(take, back)
				for i := range 20 {
					expect(t, call(key, take) == (i < 10), "hit %d", i)
				}
				set(clock, begin.Add(-back))
				full, allowed := back < time.Minute, 0
				w := must(t, b.Peek, key, limitOf(a, time.Minute, 10), 0)
				expect(t, (w.Count >= 10) == full && (w == window.Window{}) == !full, "%v back: %+v", back, w)
				w = must(t, b.Peek, key, limitOf(a, time.Minute, 10), 1)
				expect(t, w.Refused == full, "%v back: %+v", back, w)
				for range 20 {
					if call(key, take) {
						allowed++
					}
				}
				expect(t, full && allowed == 0 || !full && allowed == 10, "%v back, %d are allowed", back, allowed)
				clock.Advance(3 * time.Minute)
				expect(t, call(key, take), "%v back, and three scales later", back)
			}
		}
	})
}

// What the window before has counted weighs no more than when the present one began.
func TestWeightIsBoundedAfterAClockWentBack(t *testing.T) {
	clock := backendtest.NewClock()
	begin := clock.Now().Truncate(time.Minute)
	set(clock, begin)
	b := redisbackend.New(startServer(t).connect(), rediswindow.WithClock(clock.Now))
	l := limitOf(window.SlidingWindow, time.Minute, 10)
	must(t, b.Take, "k", l, 4)
	clock.Advance(time.Minute)
	must(t, b.Take, "k", l, 1)
	clock.Advance(-30 * time.Second)
	w := must(t, b.Peek, "k", l, 5)
	expect(t, w.Count == 5 && !w.Refused, "%+v", w)
}

// A take that was made before the clock was set back is given back, unless it was forgotten.
func TestTakesAreGivenBackAfterAClockWentBack(t *testing.T) {
	each(t, func(t *testing.T, s *server, a window.Algorithm) {
		clock := backendtest.NewClock()
		b := redisbackend.New(s.connect(), rediswindow.WithClock(clock.Now))
		for _, back := range []time.Duration{30 * time.Second, 10 * time.Minute} {
			key := back.String()
			w := must(t, b.Take, key, limitOf(a, time.Minute, 10), 5)
			expect(t, !w.Refused, "the take is refused")
			clock.Advance(-back)
			before := must(t, b.Take, key, limitOf(a, time.Minute, 10), 3)
			ok, err := b.GiveBack(t.Context(), key, limitOf(a, time.Minute, 10), 5, w.ID)
			noError(t, err)
			after := must(t, b.Peek, key, limitOf(a, time.Minute, 10), 0)
			want := before.Count
			if back < time.Minute {
				want -= 5
			}
			expect(t, ok == (back < time.Minute) && after.Count == want, "%v back: %v, %+v, %+v", back, ok, before, after)
			clock.Advance(back)
		}
	})
}

// names returns the keys of a server.
func names(t *testing.T, client rueidis.Client) []string {
	t.Helper()
	all, err := redis(t, client, "KEYS", "*").AsStrSlice()
	noError(t, err)
	return all
}

// age has the keys of a server be older than they are, since a virtual clock does not let them.
func age(t *testing.T, client rueidis.Client, d time.Duration) {
	t.Helper()
	for _, name := range names(t, client) {
		ms, err := redis(t, client, "PTTL", name).AsInt64()
		noError(t, err)
		expect(t, ms > 0, "%s does not expire", name)
		noError(t, redis(t, client, "PEXPIRE", name, fmt.Sprint(ms-d.Milliseconds())).Error())
	}
}

// grace is how much longer than necessary a backend with a clock of its own keeps a hash.
const grace = time.Hour

// The clock of Redis is real. So the test has the keys grow older with the virtual clock, and compares
// what they have left to live with what their windows have left.
func TestHashesLiveAsLongAsTheirHits(t *testing.T) {
	const short, long = 100 * time.Hour, 300 * time.Hour
	each(t, func(t *testing.T, s *server, a window.Algorithm) {
		clock := backendtest.NewClock()
		client := s.connect()
		b := redisbackend.New(client, rediswindow.WithClock(clock.Now))
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, uint64(a)))
			noError(t, redis(t, client, "FLUSHALL").Error())
			var last time.Time // when the hash changed last
			limit := 5 + r.Uint64N(100)
			for range 150 {
				scale := []time.Duration{short, long}[r.IntN(2)*r.IntN(2)]
				n := 1 + r.Uint64N(limit/2)
				var w window.Window
				var err error
				switch r.IntN(10) {
				case 0:
					w, err = b.Charge(t.Context(), "k", limitOf(a, scale, limit), n)
				case 1:
					w, err = b.Set(t.Context(), "k", limitOf(a, scale, limit), n)
				case 2:
					err = b.Reset(t.Context(), "k", limitOf(a, scale, limit))
				case 3:
					var granted bool
					w, err = b.Take(t.Context(), "k", limitOf(a, scale, limit), n)
					if granted && err == nil {
						_, err = b.GiveBack(t.Context(), "k", limitOf(a, scale, limit), 1+r.Uint64N(n), w.ID)
					}
				default:
					limit := limit + r.Uint64N(2)
					w, err = b.Hit(t.Context(), "k", limitOf(a, scale, limit), n)
				}
				noError(t, err)
				last = clock.Now()
				for step := r.IntN(2); step >= 0; step-- {
					for _, scale := range []time.Duration{short, long} {
						w := must(t, b.Peek, "k", limitOf(a, scale, limit), 0)
						expect(t, w.Count == 0 || w.Left > 0, "%+v", w)
						if w.Count > 0 {
							left := untilExpiry(t, client, names(t, client)[0])
							expect(t, left >= w.Left-time.Minute, "the hash expires in %v, and its hits are over in %v", left, w.Left)
						}
					}
					if all := names(t, client); len(all) > 0 {
						expect(t, len(all) == 1, "%q", all)
						left := untilExpiry(t, client, all[0])
						expect(t, left <= 3*long-clock.Now().Sub(last)+2*long, "the hash expires in %v", left)
					}
					by := time.Duration(r.Int64N(int64(short) / 5)).Truncate(time.Millisecond)
					clock.Advance(by)
					age(t, client, by)
				}
			}
			clock.Advance(5 * long)
			age(t, client, 5*long)
			if all := names(t, client); len(all) > 0 {
				t.Errorf("%q are left, for %v", all, untilExpiry(t, client, all[0]))
			}
		}
	})
}
