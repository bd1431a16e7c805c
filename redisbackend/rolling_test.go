package redisbackend_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// rolling are the algorithms whose refused hits do not count.
var rolling = []window.Algorithm{window.TokenBucket, window.SlidingWindow, window.SlidingLog}

// Many clients at once are granted what the algorithm allows, by the clock of the server, also while it forgets the
// script.
//
//evidence:redis Clients at once are granted exactly what a rolling algorithm allows
func TestRollingAlgorithmsAreExactUnderConcurrency(t *testing.T) {
	each(t, func(t *testing.T, s *server, a window.Algorithm) {
		backends := []*rediswindow.Backend{redisbackend.New(s.connect()), redisbackend.New(s.connect())}
		const limit, scale = 100, time.Hour // hardly anything comes back during the test
		var granted, counted atomic.Int64
		var all sync.WaitGroup
		for g := range 32 {
			all.Go(func() {
				for i := range 40 {
					n := uint64(1 + i%3)
					w, err := backends[g%2].Hit(t.Context(), "k", limitOf(a, scale, limit), n)
					if err != nil {
						t.Error(err)
					} else if counted.Add(int64(n)); !w.Refused && (a.Rolling() || w.Count <= limit) {
						granted.Add(int64(n))
					}
					if i%8 == 0 {
						s.Do("SCRIPT", "FLUSH")
					}
				}
			})
		}
		all.Wait()
		got := granted.Load()
		expect(t, got == limit || !a.Rolling() && got <= limit && got > limit-3, "%d were granted, want %d", got, limit)
		if w := must(t, backends[0].Peek, "k", limitOf(a, scale, limit), 0); !a.Rolling() {
			expect(t, w.Count == uint64(counted.Load()), "%d are counted, want %d", w.Count, counted.Load())
		}
	})
}

// The time of a token is rounded up to 2^-32 µs, and so are neither drift nor losses to be seen.
func TestTokenBucketsOfAllSizes(t *testing.T) {
	s := startServer(t)
	client := s.connect()
	for _, c := range []struct {
		scale time.Duration
		limit uint64
	}{
		{time.Millisecond, 1}, {time.Millisecond, 7_000_000}, {time.Second, 3}, {time.Second, 1e9}, {time.Hour, 7}, {24 * time.Hour, 1e6},
		{30 * 24 * time.Hour, 1 << 40}, {rediswindow.MaxScale, 1}, {rediswindow.MaxScale, 1 << 50}, {time.Second, 1 << 30},
	} {
		clock := backendtest.NewClock()
		b := redisbackend.New(client, rediswindow.WithClock(clock.Now), rediswindow.WithPrefix(fmt.Sprint(c)))
		hit := func(n uint64) window.Window {
			t.Helper()
			w := must(t, b.Hit, "k", limitOf(window.TokenBucket, c.scale, c.limit), n)
			return w
		}
		most := c.limit + c.limit/10000
		if w := hit(c.limit); w.Refused || w.Count != c.limit || w.Left < c.scale || w.Left > c.scale+c.scale/1000 {
			t.Fatalf("%v: %+v", c, w)
		}
		if w := hit(1); !w.Refused || w.Count != c.limit || w.RetryAfter <= 0 || w.RetryAfter > c.scale/time.Duration(min(c.limit, 1e6))+time.Microsecond {
			t.Fatalf("%v: %+v", c, w)
		}
		clock.Advance(c.scale / 2 / time.Microsecond * time.Microsecond)
		var n uint64
		for step := c.limit; step > 0; step /= 2 {
			if w := hit(step); !w.Refused {
				n += step
			}
		}
		expect(t, n <= most/2+1 && n+c.limit/1000 >= c.limit/2, "%v: %d came back in half a scale", c, n)
	}
}

func TestLimitsOfSlidingLogsAreBounded(t *testing.T) {
	clock := backendtest.NewClock()
	client := startServer(t).connect()
	b := redisbackend.New(client, rediswindow.WithClock(clock.Now))
	_, err := b.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_001), 1)
	if _, checked := b.Check(limitOf(window.SlidingLog, time.Second, 10_001)); !errors.Is(err, window.ErrRange) || !strings.Contains(fmt.Sprint(checked), "10000") {
		t.Errorf("%v, %v", err, checked)
	}
	for i := range 10 {
		if w, err := b.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 1000); err != nil || w.Refused || w.Count != uint64(1000*(i+1)) {
			t.Fatalf("%+v, %v", w, err)
		}
		clock.Advance(50 * time.Millisecond)
	}
	bytes, err := redis(t, client, "MEMORY", "USAGE", "throttr:{k:k}:v2", "SAMPLES", "0").AsInt64()
	expect(t, err == nil && bytes <= 12*10_000, "a log of 10,000 hits takes %d bytes, %v", bytes, err)
	t.Logf("%d bytes", bytes)
	clock.Advance(500 * time.Millisecond) // the first thousand is over
	if w, err := b.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 1001); err != nil || !w.Refused || w.RetryAfter != 50*time.Millisecond {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := b.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 1000); err != nil || w.Refused || w.Count != 10_000 {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := b.Set(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 1<<40); err != nil || w.Count != 10_000 {
		t.Errorf("%+v, %v", w, err)
	}
	b = redisbackend.New(client, rediswindow.WithMaxLog(20_000))
	if _, err := b.Check(limitOf(window.SlidingLog, time.Second, 20_000)); err != nil {
		t.Error(err)
	}
}
