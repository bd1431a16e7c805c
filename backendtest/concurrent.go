package backendtest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// In these tests many goroutines make calls at one time. What their answers say together must be right, and what is
// left.
var concurrentProperties = []property{
	{"concurrent takes and give-backs leave what is held", testStorms, nil},
	{"of takes in opposite order one is granted", testOppositeOrder, []need{have(takeAll)}},
	{"windows that end under concurrent takes exceed no limit", testEndings,
		[]need{have(giveBack, reset, set, deleteAll)}},
}

func testOppositeOrder(s *suite) {
	c := s.count("").in(time.Hour).upTo(1)
	for round := range 100 {
		a, b := c.on(fmt.Sprint("a", round)).take(1), c.on(fmt.Sprint("b", round)).take(1)
		var grants atomic.Int64
		concurrently(16, func(i int) {
			takes := []window.Take{a, b}
			if i%2 == 0 {
				takes = []window.Take{b, a}
			}
			second := s.clients()[i/2%len(s.clients())]
			if s.try(call{method: takeAll, takes: takes, second: second}).ok {
				grants.Add(1)
			}
		})
		if grants.Load() != 1 {
			s.Fatalf("%d of 16 takes of the same two windows are granted, want 1", grants.Load())
		}
	}
}

// storm is takes by many goroutines at one time.
type storm struct {
	count
	clients []bool
	keys    int           // if more than one, and not for hits, each call takes of two
	hits    bool          // of 1, instead of takes
	gives   bool          // most of what is granted is given back
	ends    bool          // Reset, Set and Delete end windows meanwhile
	every   int           // 0, or: at every of so many calls, the clock advances
	advance time.Duration // by so much
	granted [8_000][]grant
	ended   atomic.Uint64 // windows, by calls
	lost    atomic.Int64  // give-backs of a window that is open
}

// grant is a take that was granted, or a charge.
type grant struct {
	take call
	window.Window
	back bool
}

// testStorms keeps what is granted, or gives most of it back.
func testStorms(s *suite) {
	c := s.count("one").in(time.Hour).upTo(s.bounded(250) - 50) // there is room for 50 charges
	one := []bool{false}
	(&storm{count: c, clients: one, keys: 1}).run()
	(&storm{count: c.on("hits"), clients: s.clients(), keys: 1, hits: true}).run()
	(&storm{count: c.on("hits of ").upTo(goroutines), clients: one, keys: 50,
		hits: true}).run() // windows open at one time
	if !s.has(giveBack) {
		return
	}
	(&storm{count: c.on("gives"), clients: one, keys: 1, gives: true}).run()
	(&storm{count: c.on("all"), clients: s.clients(), keys: 1, gives: true}).run()
	if s.has(takeAll) && !s.Algorithm.Rolling() {
		(&storm{count: c.on("two"), clients: one, keys: 4, gives: true}).run()
	}
}

// testEndings has windows end meanwhile, by Reset, Set and Delete, and if they are not of a rolling algorithm, in time: of
// each window, up to the limit is held. Then all clients do so, which tell windows apart in different ways.
func testEndings(s *suite) {
	c := s.count("ends").upTo(s.bounded(20))
	all := []*storm{{count: c, every: 8, advance: 20 * time.Second},
		{count: c.on("all").in(time.Hour), clients: s.clients()}}
	if calendar(s) == "" && jumps(s) == "" {
		for _, c := range []count{c.ofCalendar(window.Day, "Europe/Berlin", 0),
			c.ofCalendar(window.Month, "Australia/Lord_Howe", 31)} {
			all = append(all, &storm{count: c, every: 2000, advance: time.Duration(ends(&c.limit, s.now()) - s.now())})
		}
	}
	for _, storm := range all {
		if storm.clients == nil {
			storm.clients = []bool{false}
		}
		if s.Algorithm.Rolling() {
			storm.every = 0
		}
		storm.keys = 1
		storm.gives = true
		storm.ends = true
		storm.run()
		storm.takesUpTo()
	}
}

func (s *storm) run() {
	concurrently(len(s.granted), s.step)
	held, sums := make([]uint64, s.keys), map[int64]uint64{} // by key, and by window
	all := uint64(0)
	for _, grants := range s.granted {
		for _, g := range grants {
			if !g.back {
				held[s.number(g.take.Key)] += g.take.N
				sums[g.ID] += g.take.N
				all += g.take.N
			}
		}
	}
	switch most := (s.ended.Load() + 1) * s.limit.Max; {
	case !s.ends:
		s.checkHeld(held)
	case s.every > 0:
		s.checkWindows(sums)
	default:
		s.expect(all <= most, "%d are held, at most %d with a limit of %d and %d calls that end the window", all,
			most, s.limit.Max, s.ended.Load())
	}
}

// of returns calls of one of the keys, and number which one it is.
func (s *storm) of(i int) count {
	return s.on(fmt.Sprint(s.key, i%s.keys)).by(s.clients[i%len(s.clients)])
}

func (s *storm) number(key string) (n int) { fmt.Sscan(key[len(s.key):], &n); return n }

// step makes a call. What it takes is given back at once, or if windows end, later by the same goroutine.
func (s *storm) step(i int) {
	c := s.of(i)
	if before := i - 4*goroutines; s.ends && i/goroutines%3 > 0 && before >= 0 {
		s.giveBack(s.granted[before])
	}
	switch {
	case s.every > 0 && i%s.every == s.every/2:
		s.Clock.Advance(s.advance)
	case s.ends && i%250 == 125:
		s.ended.Add(1)
		c.try([]method{reset, set, deleteAll}[i/250%3], 0)
	case s.ends && i%250 == 0:
		c.try(peek, 1)
	case !s.ends && s.gives && i%100 == 10 && i < 5000 && !s.Algorithm.Rolling():
		s.granted[i] = []grant{{take: c.call(charge, 1), Window: c.try(charge, 1).Window}}
	default:
		s.granted[i] = s.take(i)
		if s.gives && !s.ends && i/goroutines%8 < 7 {
			s.giveBack(s.granted[i])
		}
	}
}

// take makes one take or hit, or two takes of different keys.
func (s *storm) take(i int) (granted []grant) {
	c, n := s.of(i), uint64(1+i%5)
	one := c.call(take, n)
	if s.hits {
		one = c.call(hit, 1)
	}
	if s.hits || s.keys == 1 {
		if a := s.suite.try(one); !a.Refused && a.err == nil && a.Count <= s.limit.Max {
			return []grant{{take: one, Window: a.Window}}
		}
		return nil
	}
	two := call{method: takeAll, takes: []window.Take{c.take(n), s.of(i + 1 + i/4%3).take(n)}, second: c.second}
	a := s.suite.try(two)
	for j, t := range two.takes {
		if a.ok {
			granted = append(granted, grant{take: call{Take: t}, Window: a.windows[j]})
		}
	}
	return granted
}

func (s *storm) giveBack(granted []grant) {
	for i := range granted {
		g := &granted[i]
		over := s.every > 0 && !s.Clock.Now().Before(g.ExpiresAt)
		back := g.take
		back.method = giveBack
		back.id = g.ID
		g.back = s.suite.try(back).ok
		s.expect(!g.back || !over, "%v returns true after the end of the window", back)
		if !g.back {
			s.lost.Add(1)
		}
	}
}

// checkHeld fails the test unless each client finds what is held of each key, or all hits.
func (s *storm) checkHeld(held []uint64) {
	bucket := s.Algorithm == window.TokenBucket && s.gives // which may give less back
	s.expect(s.lost.Load() == 0 || bucket || s.MayLose && s.keys > 1, "GiveBack returns false %d times for %q", s.lost.Load(), s.key)
	for i, held := range held {
		s.expect(s.gives || held == s.limit.Max, "%d of %d are granted to %q", held, s.limit.Max, s.key)
		least, most := held, held
		switch {
		case bucket:
			most = s.limit.Max
		case s.hits && !s.Algorithm.Rolling(): // they count when they are over the limit
			most = s.bounded(uint64(len(s.granted) / s.keys))
			if !s.SkipsDenied {
				least = most
			}
		}
		for _, client := range s.clients {
			n := s.of(i).by(client).try(peek, 0).Count
			s.expect(n >= least && n <= most, "the count of key %q is %d, want %d to %d", s.of(i).key, n, least, most)
		}
	}
}

// checkWindows fails the test if more is held of a window than it allows.
func (s *storm) checkWindows(sums map[int64]uint64) {
	for id, sum := range sums {
		s.expect(sum <= s.limit.Max, "%d are held of window %d, whose limit is %d", sum, id, s.limit.Max)
	}
	s.expect(len(sums) >= 2, "there was %d window", len(sums))
	last := s.of(0).try(hit, 0)
	s.expect(last.Count == sums[last.ID], "the count is %d, and %d are held of this window", last.Count, sums[last.ID])
}

// takesUpTo has clients set the count to 0 and take until the limit is reached. All of them find that.
func (s *storm) takesUpTo() {
	c := s.of(0)
	c.try(set, 0)
	for n := range s.limit.Max + 10 {
		a := c.by(s.clients[int(n)%len(s.clients)]).try(take, 1)
		s.expect(a.Refused == (n >= s.limit.Max), "after Set to 0, take %d of %d returns %+v", n+1,
			s.limit.Max, a.Window)
	}
	for _, client := range s.clients {
		w := c.by(client).try(peek, 0)
		s.expect(w.Count == s.limit.Max, "after as many takes as the limit allows, a client finds %+v", w.Window)
	}
}
