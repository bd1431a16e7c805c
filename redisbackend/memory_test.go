package redisbackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
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

// do makes a call on both.
func (s *same) do(what string, t window.Take, call func(b window.Backend) (window.Window, error)) {
	inMemory, err := call(s.memory)
	noError(s.T, err)
	inRedis, err := call(s.redis)
	noError(s.T, err)
	s.equal(what, t, inMemory, inRedis)
	if what == "take" && !inMemory.Refused {
		s.taken = append(s.taken, granted{t, inMemory.ID, inRedis.ID})
	}
}

// equal requires windows to be equal, but for their IDs and the rounding of times.
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
	s.peek(g.Take)
}

// peek looks at a window, under the limit last used.
func (s *same) peek(t window.Take) {
	s.do("peek", t, func(b window.Backend) (window.Window, error) { return b.Peek(s.Context(), t.Key, t.Limit, t.N) })
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
		s.used(t)
		s.do("take", t, func(b window.Backend) (window.Window, error) { return b.Take(s.Context(), t.Key, t.Limit, t.N) })
	case x < 55:
		s.used(t)
		s.do("hit", t, func(b window.Backend) (window.Window, error) { return b.Hit(s.Context(), t.Key, t.Limit, t.N) })
	case x < 65:
		l := t.Limit
		l.Max, l.Burst = 0, 0
		if last, ok := s.limits[fmt.Sprint(t.Key, l)]; ok {
			t.Limit = last
		}
		t.N--
		s.peek(t)
	case x < 70:
		s.used(t)
		s.do("charge", t, func(b window.Backend) (window.Window, error) { return b.Charge(s.Context(), t.Key, t.Limit, t.N) })
	case x < 72:
		s.used(t)
		s.do("set", t, func(b window.Backend) (window.Window, error) { return b.Set(s.Context(), t.Key, t.Limit, t.N) })
	case x < 73:
		s.used(t)
		noError(s.T, s.memory.Reset(s.Context(), t.Key, t.Limit))
		noError(s.T, s.redis.Reset(s.Context(), t.Key, t.Limit))
		s.peek(t)
	case x < 85:
		s.takeAll()
	default:
		s.giveBack()
	}
}

// Redis decides as memory does, whatever is called: all algorithms, give-backs, several takes, and a Max and a Burst
// that change. THROTTR_RANDOM_CALLS is how many calls are made.
func TestRandomCallsAgreeWithMemory(t *testing.T) {
	calls := 4000
	if n, err := strconv.Atoi(os.Getenv("THROTTR_RANDOM_CALLS")); err == nil {
		calls = n
	}
	now := time.UnixMicro(1_893_456_000_000_000)
	clock := func() time.Time { return now }
	s := &same{
		T: t, Rand: rand.New(rand.NewPCG(1, uint64(calls))), limits: map[string]window.Limit{},
		memory: memory.New(memory.WithClock(clock)), redis: redisbackend.New(connect(t, testkit.StartRedis(t)), rediswindow.WithClock(clock)),
	}
	for range calls {
		s.next()
		if s.IntN(3) == 0 {
			now = now.Add(time.Duration(s.IntN(400_000)) * time.Microsecond)
		}
		if s.IntN(150) == 0 {
			now = now.Add(time.Duration(s.IntN(30)) * time.Second)
		}
		if s.IntN(300) == 0 {
			now = now.Add(time.Duration(s.IntN(60)) * time.Hour)
		}
	}
}

// gate is a client whose requests wait until it is open.
type gate struct {
	plainClient
	open chan struct{}
}

func (g *gate) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	<-g.open
	return g.plainClient.Eval(ctx, script, keys, args)
}

// Equal calls share an entry of a request. Each has a place and an ID of its own, under which it is given back.
func TestEqualTakesAreGivenBackEachForItself(t *testing.T) {
	each(t, func(t *testing.T, s *testkit.Redis, a window.Algorithm) {
		clock := backendtest.NewClock()
		g := &gate{plainClient: plainClient{connect(t, s)}, open: make(chan struct{})}
		b := rediswindow.New(g, rediswindow.WithClock(clock.Now))
		l := limitOf(a, time.Hour, 7)
		windows := make([]window.Window, 10) // of takes of 1, of which 7 fit
		var all sync.WaitGroup
		all.Go(func() { b.Peek(t.Context(), "other", l, 0) })
		time.Sleep(10 * time.Millisecond)
		for i := range windows {
			all.Go(func() { windows[i], _ = b.Take(t.Context(), "k", l, 1) })
		}
		time.Sleep(50 * time.Millisecond)
		close(g.open)
		all.Wait()
		ids := map[uint64]int64{} // by count
		for _, w := range windows {
			if !w.Refused {
				ids[w.Count] = w.ID
			}
		}
		expect(t, len(ids) == 7, "%+v", windows)
		givesBack := func(count uint64, want bool) {
			t.Helper()
			done, err := b.GiveBack(t.Context(), "k", l, 1, ids[count])
			expect(t, done == want && err == nil, "take %d: %v, %v", count, done, err)
		}
		givesBack(7, true)
		givesBack(6, true)
		w := must(t, b.Peek, "k", l, 0)
		expect(t, w.Count == 5, "%+v", w)
		if a == window.TokenBucket { // by then the first ones have come back
			clock.Advance(2 * time.Hour / 7)
			givesBack(1, false)
		}
	})
}
