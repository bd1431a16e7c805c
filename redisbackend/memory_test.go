package redisbackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// same makes the same calls on two backends.
type same struct {
	*testing.T
	*rand.Rand
	memory, redis window.Backend
	client        rueidis.Client
	now           time.Time               // of both
	limits        map[string]window.Limit // by key and count: Max and Burst as last used
	taken         []granted
	call          int
}

// granted is a take that may be given back.
type granted struct {
	window.Take
	inMemory, inRedis int64 // the IDs
}

// take returns a take of a count. Now and then its Max and Burst are others than before.
func (s *same) take() window.Take {
	l := window.Limit{
		Name: []string{"", "n"}[s.IntN(2)], Scale: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[s.IntN(3)],
		Algorithm: window.Algorithm(1 + s.IntN(int(window.CalendarWindow))),
	}
	if l.Algorithm == window.CalendarWindow {
		l.Scale = 0
		l.Calendar = window.Calendar(1 + s.IntN(int(window.Year)))
		l.Zone = []string{"", "America/Havana"}[s.IntN(2)]
	}
	key := fmt.Sprint("k", s.IntN(4))
	count := fmt.Sprint(key, l)
	last, known := s.limits[count]
	if known && s.IntN(10) > 0 {
		l = last
	} else {
		l.Max = []uint64{1, 4, 5, 7, 9, 100}[s.IntN(6)]
		if l.Algorithm == window.TokenBucket && s.IntN(2) == 0 {
			l.Burst = []uint64{1, 3, 11, 200}[s.IntN(4)]
		}
	}
	n := 1 + s.Uint64N(3)
	if s.IntN(20) == 0 {
		n = 1 + s.Uint64N(12)
	}
	return l.For(key, n)
}

// used notes the Max and Burst of a call that is not Peek, which changes nothing.
func (s *same) used(t window.Take) {
	l := t.Limit
	l.Max, l.Burst = 0, 0
	s.limits[fmt.Sprint(t.Key, l)] = t.Limit
}

// method is a method of both.
type method func(b window.Backend, ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error)

// do makes a call on both.
func (s *same) do(what string, t window.Take, call method) {
	inMemory, err := call(s.memory, s.Context(), t.Key, t.Limit, t.N)
	noError(s.T, err)
	inRedis, err := call(s.redis, s.Context(), t.Key, t.Limit, t.N)
	noError(s.T, err)
	s.equal(what, t, inMemory, inRedis)
	if what == "peek" {
		return
	}
	s.used(t)
	if what == "take" && !inMemory.Refused {
		s.taken = append(s.taken, granted{t, inMemory.ID, inRedis.ID})
	}
}

// advance has both clocks go on. That of the server is real, so the hashes grow older by the same time.
func (s *same) advance(d time.Duration) {
	s.now = s.now.Add(d)
	err := s.client.Do(s.Context(), s.client.B().Eval().Script(`for _, name in ipairs(redis.call('KEYS', '*')) do
  redis.call('PEXPIRE', name, string.format('%.0f', redis.call('PTTL', name) - ARGV[1]))
end`).Numkeys(0).Arg(strconv.FormatInt(d.Milliseconds(), 10)).Build()).Error()
	if !rueidis.IsRedisNil(err) {
		noError(s.T, err)
	}
}

// grace is how much longer than necessary a backend with a clock of its own keeps a hash.
const grace = time.Hour

// equal requires windows to be equal, but for their IDs and the rounding of times, and that the hash lives as long.
func (s *same) equal(what string, t window.Take, inMemory, inRedis window.Window) {
	s.Helper()
	retry := func(w window.Window) time.Duration {
		if w.Refused && w.RetryAfter == 0 {
			return w.Left
		}
		return w.RetryAfter
	}
	near := func(x, y time.Duration) bool { return x-y <= time.Microsecond && y-x <= time.Microsecond }
	if inMemory.Refused != inRedis.Refused || inMemory.Count != inRedis.Count || !near(inMemory.Left, inRedis.Left) || !near(retry(inMemory), retry(inRedis)) {
		s.Fatalf("call %d: %s %v\n  memory %+v\n  Redis  %+v", s.call, what, t, inMemory, inRedis)
	}
	if inRedis.Left > 0 {
		lives := time.Duration(number(s.T, s.client, "PTTL", "throttr:{k:"+t.Key+"}:v2")) * time.Millisecond
		expect(s.T, lives-grace >= inRedis.Left-time.Minute, "call %d: %s %v: the hash expires in %v: %+v", s.call, what, t, lives, inRedis)
	}
}

func (s *same) giveBack() {
	if len(s.taken) == 0 {
		return
	}
	i := max(0, len(s.taken)-1-s.IntN(8))
	g := s.taken[i]
	s.taken = append(s.taken[:i], s.taken[i+1:]...)
	inMemory, err := s.memory.GiveBack(s.Context(), g.Key, g.Limit, g.N, g.inMemory)
	noError(s.T, err)
	inRedis, err := s.redis.GiveBack(s.Context(), g.Key, g.Limit, g.N, g.inRedis)
	noError(s.T, err)
	expect(s.T, inMemory == inRedis, "call %d: give back %+v: %v, %v", s.call, g, inMemory, inRedis)
	s.do("peek", g.Take, window.Backend.Peek)
}

// takeAll makes several takes of different counts. If they are refused, no Max changes.
func (s *same) takeAll() {
	var takes []window.Take
	for size := 2 + s.IntN(3); len(takes) < size; {
		if t := s.take(); !slices.ContainsFunc(takes, func(u window.Take) bool { return limits.SameCount(&t, &u) }) {
			takes = append(takes, t)
		}
	}
	inMemory, inRedis := make([]window.Window, len(takes)), make([]window.Window, len(takes))
	one, err := s.memory.TakeAll(s.Context(), takes, inMemory)
	noError(s.T, err)
	other, err := s.redis.TakeAll(s.Context(), takes, inRedis)
	noError(s.T, err)
	expect(s.T, one == other, "call %d: %v: %v, %v", s.call, takes, one, other)
	for i, t := range takes {
		s.equal("take all", t, inMemory[i], inRedis[i])
		if one {
			s.used(t)
			s.taken = append(s.taken, granted{t, inMemory[i].ID, inRedis[i].ID})
		}
	}
}

// next makes a call.
func (s *same) next() {
	s.call++
	t := s.take()
	switch x := s.IntN(100); {
	case x < 40:
		s.do("take", t, window.Backend.Take)
	case x < 55:
		s.do("hit", t, window.Backend.Hit)
	case x < 65:
		l := t.Limit
		l.Max, l.Burst = 0, 0
		if last, ok := s.limits[fmt.Sprint(t.Key, l)]; ok {
			t.Limit = last
		}
		t.N--
		s.do("peek", t, window.Backend.Peek)
	case x < 70:
		s.do("charge", t, window.Backend.Charge)
	case x < 72:
		s.do("set", t, window.Backend.Set)
	case x < 73:
		s.used(t)
		noError(s.T, s.memory.Reset(s.Context(), t.Key, t.Limit))
		noError(s.T, s.redis.Reset(s.Context(), t.Key, t.Limit))
		s.do("peek", t, window.Backend.Peek)
	case x < 85:
		s.takeAll()
	default:
		s.giveBack()
	}
}

// Redis decides as memory does, whatever is called: all algorithms, give-backs, several takes, and a Max and a Burst
// that change. Hashes live as long as what they have. THROTTR_RANDOM_CALLS is how many calls are made.
func TestRandomCallsAgreeWithMemory(t *testing.T) {
	calls := 4000
	if n, err := strconv.Atoi(os.Getenv("THROTTR_RANDOM_CALLS")); err == nil {
		calls = n
	}
	server := testkit.StartRedis(t)
	s := &same{
		T: t, Rand: rand.New(rand.NewPCG(1, uint64(calls))), limits: map[string]window.Limit{},
		client: connect(t, server), now: time.UnixMicro(1_893_456_000_000_000),
	}
	clock := func() time.Time { return s.now }
	s.memory = memory.New(memory.WithClock(clock))
	s.redis = redisbackend.New(s.client, rediswindow.WithClock(clock))
	for range calls {
		s.next()
		if s.IntN(3) == 0 {
			s.advance(time.Duration(s.IntN(400_000)) * time.Microsecond)
		}
		if s.IntN(150) == 0 {
			s.advance(time.Duration(s.IntN(30)) * time.Second)
		}
		if s.IntN(300) == 0 {
			s.advance(time.Duration(s.IntN(60)) * time.Hour)
		}
	}
	s.advance(2 * 366 * 24 * time.Hour)
	expect(t, server.Must(t, "DBSIZE") == "0", "hashes are left")
}
