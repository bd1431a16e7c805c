package postgresbackend_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/postgresbackend"
	"github.com/throttr-go/throttr/window"
)

// same makes the same calls on memory, and on one of two backends on PostgreSQL.
type same struct {
	*testing.T
	*rand.Rand
	memory   window.Backend
	postgres []window.Backend
	taken    []taken
	call     int
}

// taken is a take that may be given back.
type taken struct {
	window.Take
	inMemory, inPostgres int64 // the IDs
}

// take returns a take of one of some counts, each of which has several Max and Burst.
func (s *same) take() window.Take {
	l := window.Limit{
		Name: []string{"", "n"}[s.IntN(2)], Scale: []time.Duration{time.Second, 10 * time.Second}[s.IntN(2)],
		Algorithm: window.FixedWindow + window.Algorithm(s.IntN(int(window.CalendarWindow))), Max: []uint64{4, 7, 100}[s.IntN(3)],
	}
	if l.Algorithm == window.TokenBucket && s.IntN(2) == 0 {
		l.Burst = []uint64{3, 11, 200}[s.IntN(3)]
	}
	if l.Algorithm == window.CalendarWindow {
		l.Scale = 0
		l.Calendar = window.Day + window.Calendar(s.IntN(2))
		l.Zone = []string{"", "Europe/Berlin"}[s.IntN(2)]
	}
	return l.For(fmt.Sprint("k", s.IntN(4)), 1+s.Uint64N(1+s.Uint64N(12)))
}

// both makes a call on both, and requires the same window, but for its ID.
func (s *same) both(what string, t window.Take, call func(b window.Backend) (window.Window, error)) {
	s.Helper()
	one, err := call(s.memory)
	noError(s, err)
	other, err := call(s.postgres[s.IntN(2)])
	noError(s, err)
	s.equal(what, t, one, other)
}

func (s *same) equal(what string, t window.Take, one, other window.Window) {
	s.Helper()
	ids := taken{t, one.ID, other.ID}
	one.ID = 0
	other.ID = 0
	expect(s, one.ExpiresAt.Equal(other.ExpiresAt), "call %d: %s %v: %v and %v", s.call, what, t, one.ExpiresAt, other.ExpiresAt)
	one.ExpiresAt = other.ExpiresAt
	expect(s, one == other, "call %d: %s %v\n  memory     %+v\n  PostgreSQL %+v", s.call, what, t, one, other)
	if what == "take" && !one.Refused {
		s.taken = append(s.taken, ids)
	}
}

func (s *same) giveBack() {
	if len(s.taken) == 0 {
		return
	}
	i := max(0, len(s.taken)-1-s.IntN(8))
	g := s.taken[i]
	s.taken = append(s.taken[:i], s.taken[i+1:]...)
	one, err := s.memory.GiveBack(s.Context(), g.Key, g.Limit, g.N, g.inMemory)
	noError(s, err)
	other, err := s.postgres[s.IntN(2)].GiveBack(s.Context(), g.Key, g.Limit, g.N, g.inPostgres)
	noError(s, err)
	expect(s, one == other, "call %d: give back %+v: %v and %v", s.call, g, one, other)
}

// takeAll makes several takes, of which some may be of one count.
func (s *same) takeAll() {
	takes := make([]window.Take, 2+s.IntN(3))
	for i := range takes {
		takes[i] = s.take()
	}
	ones, others := make([]window.Window, len(takes)), make([]window.Window, len(takes))
	one, err := s.memory.TakeAll(s.Context(), takes, ones)
	noError(s, err)
	other, err := s.postgres[s.IntN(2)].TakeAll(s.Context(), takes, others)
	noError(s, err)
	expect(s, one == other, "call %d: %v: %v and %v", s.call, takes, one, other)
	merged, _ := limits.Merge(takes)
	for i, t := range takes {
		what := "take all"
		if one && len(merged) == len(takes) {
			what = "take"
		}
		s.equal(what, t, ones[i], others[i])
	}
}

// next makes a call.
func (s *same) next() {
	s.call++
	t := s.take()
	switch x := s.IntN(100); {
	case x < 40:
		s.both("take", t, func(b window.Backend) (window.Window, error) { return b.Take(s.Context(), t.Key, t.Limit, t.N) })
	case x < 50:
		s.both("hit", t, func(b window.Backend) (window.Window, error) { return b.Hit(s.Context(), t.Key, t.Limit, t.N-1) })
	case x < 62:
		s.both("peek", t, func(b window.Backend) (window.Window, error) { return b.Peek(s.Context(), t.Key, t.Limit, t.N-1) })
	case x < 68:
		s.both("charge", t, func(b window.Backend) (window.Window, error) { return b.Charge(s.Context(), t.Key, t.Limit, t.N) })
	case x < 71:
		s.both("set", t, func(b window.Backend) (window.Window, error) { return b.Set(s.Context(), t.Key, t.Limit, t.N-1) })
	case x < 72:
		noError(s, s.memory.Reset(s.Context(), t.Key, t.Limit))
		noError(s, s.postgres[s.IntN(2)].Reset(s.Context(), t.Key, t.Limit))
	case x < 73:
		scales := []time.Duration{t.Limit.Scale}
		if t.Limit.Scale == 0 {
			scales = nil // all
		}
		one, err := s.memory.Delete(s.Context(), t.Key, scales...)
		noError(s, err)
		other, err := s.postgres[s.IntN(2)].Delete(s.Context(), t.Key, scales...)
		noError(s, err)
		expect(s, one == other, "call %d: delete %v: %d and %d", s.call, t, one, other)
	case x < 86:
		s.takeAll()
	default:
		s.giveBack()
	}
}

// PostgreSQL decides as memory does, to the nanosecond, whatever is called: all algorithms, give-backs, several
// takes, and a Max and a Burst that change. THROTTR_RANDOM_CALLS is how many calls are made.
func TestRandomCallsAgreeWithMemory(t *testing.T) {
	calls := 2000
	if n, err := strconv.Atoi(os.Getenv("THROTTR_RANDOM_CALLS")); err == nil {
		calls = n
	}
	server := testkit.StartPostgres(t)
	pool := connect(t, server)
	now := time.UnixMicro(1_893_456_000_000_000)
	clock := func() time.Time { return now }
	opts := newTable(t, pool, postgresbackend.WithClock(clock))
	s := &same{
		T: t, Rand: rand.New(rand.NewPCG(1, uint64(calls))), memory: memory.New(memory.WithClock(clock)),
		postgres: []window.Backend{postgresbackend.New(pool, opts...), postgresbackend.New(connect(t, server), opts...)},
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
			now = now.Add(time.Duration(s.IntN(20)) * time.Hour)
		}
	}
}

// If the clock goes back by more than a scale, what is counted starts at that time, also if all takes are refused.
func TestWindowsEndAlthoughTheClockHasGoneBack(t *testing.T) {
	pool := connect(t, testkit.StartPostgres(t))
	for _, a := range limits.Algorithms {
		clock := backendtest.NewClock()
		b := postgresbackend.New(pool, newTable(t, pool, postgresbackend.WithClock(clock.Now))...)
		l := window.Limit{Max: 5, Scale: time.Second, Algorithm: a}
		must(t, b.Take, "k", l, 5)
		clock.Advance(-time.Hour)
		for i := range 22 {
			w := must(t, b.Take, "k", l, 5)
			expect(t, w.Refused == (i < 10) || a != window.FixedWindow, "%v: take %d: %+v", a, i, w)
			if !w.Refused {
				break
			}
			expect(t, i < 21, "%v: nothing is granted after two scales: %+v", a, w)
			clock.Advance(100 * time.Millisecond)
		}
	}
}

// What a log would count above the largest limit is not kept.
func TestChargesOfALogCountUpToTheLargestLimit(t *testing.T) {
	pool := connect(t, testkit.StartPostgres(t))
	b := postgresbackend.New(pool, newTable(t, pool)...)
	l := window.Limit{Max: 5, Scale: time.Hour, Algorithm: window.SlidingLog}
	for _, step := range []struct{ n, want uint64 }{{8, 8}, {postgresbackend.MaxLog - 3, postgresbackend.MaxLog}, {1 << 62, postgresbackend.MaxLog}} {
		w := must(t, b.Charge, "k", l, step.n)
		expect(t, w.Count == step.want, "a charge of %d: %+v, want a count of %d", step.n, w, step.want)
	}
}
