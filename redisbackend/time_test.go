package redisbackend_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// grace is how much longer than necessary a backend with a clock of its own keeps a hash.
const grace = time.Hour

// untilExpiry returns what the hash of the key "k" has left to live, less the grace. It is below 0 if there is none.
func untilExpiry(t *testing.T, client rueidis.Client) time.Duration {
	t.Helper()
	ms := number(t, client, "PTTL", "throttr:{k:k}:v2")
	expect(t, ms != -1, "the hash does not expire")
	return time.Duration(ms)*time.Millisecond - grace
}

// age has the hash be older than it is.
func age(t *testing.T, client rueidis.Client, d time.Duration) {
	t.Helper()
	if left := untilExpiry(t, client) + grace; left > 0 {
		redis(t, client, "PEXPIRE", "throttr:{k:k}:v2", fmt.Sprint((left - d).Milliseconds()))
	}
}

// The clock of Redis is real. So the test has the hash grow older with the virtual clock, and compares what it has left
// to live with what its windows have left.
func TestHashesLiveAsLongAsTheirHits(t *testing.T) {
	const short, long = 100 * time.Hour, 300 * time.Hour
	each(t, func(t *testing.T, s *testkit.Redis, a window.Algorithm) {
		clock := backendtest.NewClock()
		client := connect(t, s)
		b := redisbackend.New(client, rediswindow.WithClock(clock.Now))
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, uint64(a)))
			limit := 5 + r.Uint64N(100)
			for range 150 {
				l := limitOf(a, []time.Duration{short, long}[r.IntN(2)*r.IntN(2)], limit)
				n := 1 + r.Uint64N(limit/2)
				switch r.IntN(10) {
				case 0:
					must(t, b.Charge, "k", l, n)
				case 1:
					must(t, b.Set, "k", l, n)
				case 2:
					noError(t, b.Reset(t.Context(), "k", l))
				case 3:
					w := must(t, b.Take, "k", l, n)
					_, err := b.GiveBack(t.Context(), "k", l, n, w.ID)
					noError(t, err)
				default:
					l.Max += r.Uint64N(2)
					must(t, b.Hit, "k", l, n)
				}
				last := clock.Now()
				for range 1 + r.IntN(2) {
					left := untilExpiry(t, client)
					for _, scale := range []time.Duration{short, long} {
						w := must(t, b.Peek, "k", limitOf(a, scale, limit), 0)
						expect(t, w.Count == 0 || w.Left > 0 && left >= w.Left-time.Minute, "the hash expires in %v: %+v", left, w)
					}
					expect(t, left <= 5*long-clock.Now().Sub(last), "the hash expires in %v", left)
					by := time.Duration(r.Int64N(int64(short) / 5)).Truncate(time.Millisecond)
					clock.Advance(by)
					age(t, client, by)
				}
			}
			clock.Advance(5 * long)
			age(t, client, 5*long)
			expect(t, untilExpiry(t, client) < 0, "the hash is left")
		}
	})
}
