package backendtest

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// In these tests many goroutines make calls at one time. What their answers say together must be right, and what is
// left. A call that fails may have been counted, or not. The test has failed then: what was granted for sure must still
// be within the limit, but can be less than it.

func testOppositeOrder(s *suite) {
	c := s.count("").in(time.Hour).upTo(1)
	for round := range 100 {
		a, b := c.on(fmt.Sprint("a", round)).take(1), c.on(fmt.Sprint("b", round)).take(1)
		orders := [][]window.Take{{a, b}, {b, a}}
		var grants atomic.Int64
		concurrently(16, func(i int) {
			if s.try(call{method: takeAll, takes: orders[i%2], client: i / 2 % len(s.backends)}).ok {
				grants.Add(1)
			}
		})
		if n := grants.Load(); n > 1 || n == 0 && !s.Failed() {
			s.Fatalf("%d of 16 takes of the same two windows are granted, want 1", n)
		}
	}
}

// storm is how many calls goroutines make.
const storm = 8_000

func testStorms(s *suite) {
	c := s.count("").in(time.Hour).upTo(s.bounded(250) - 50) // there is room for 50 charges
	c.on("hit").hits(1)
	c.on("hit ").upTo(goroutines).hits(50) // windows open at one time
	if !s.has(giveBack) {
		return
	}
	c.on("keep").holders(1).storm(false)
	c.on("give back").holders(1).storm(true)
	c.on("all clients").holders(len(s.backends)).storm(true)
}

// hits hits keys. The limit of each is granted, and what is denied counts, too.
func (c count) hits(keys int) {
	key := func(i int) count { return c.on(fmt.Sprint(c.key, i%keys)).by(i % len(c.backends)) }
	granted := make([]atomic.Uint64, keys)
	concurrently(storm, func(i int) {
		if a := key(i).try(hit, 1); !a.Refused && a.Count <= c.limit.Max {
			granted[i%keys].Add(1)
		}
	})
	least, most := c.limit.Max, c.bounded(storm/uint64(keys))
	switch {
	case c.Algorithm.Rolling():
		most = least
	case !c.SkipsDenied:
		least = most
	}
	for i := range granted {
		n := granted[i].Load()
		c.expect(c.reached(n), "%d of %d are granted to %q", n, c.limit.Max, key(i).key)
		key(i).counts(least, most)
	}
}

// reached reports whether n is the limit, or less because calls have failed.
func (c count) reached(n uint64) bool { return n == c.limit.Max || n < c.limit.Max && c.Failed() }

// counts fails the test unless each client finds a count between two numbers.
func (c count) counts(least, most uint64) {
	for client := range c.backends {
		n := c.by(client).try(peek, 0).Count
		c.expect(n >= least && n <= most || c.Failed(), "the count of %q is %d, want %d to %d", c.key, n, least, most)
	}
}

// holders are goroutines that take, and hold what is granted until they give it back. They hold nothing of a call that
// fails.
type holders struct {
	count
	clients int // how many they call by

	mu   sync.Mutex       // guards what follows
	held map[int64]uint64 // by window
	lost int              // calls of GiveBack that have returned false
}

func (c count) holders(clients int) *holders {
	return &holders{count: c, clients: clients, held: map[int64]uint64{}}
}

// calls returns the calls of a goroutine.
func (h *holders) calls(i int) count { return h.by(i % h.clients) }

// take makes a take, or a charge, and returns what gives it back if it is granted.
func (h *holders) take(m method, i int, n uint64) (back call, granted bool) {
	back = h.calls(i).call(m, n)
	a := h.suite.try(back)
	if a.Refused {
		return back, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[a.ID] += n
	back.method = giveBack
	back.id = a.ID
	return back, true
}

func (h *holders) giveBack(c call) {
	a := h.suite.try(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.ok || a.err != nil {
		h.held[c.id] -= c.N
	} else {
		h.lost++
	}
}

// all returns how much is held.
func (h *holders) all() (sum uint64) {
	for _, n := range h.held {
		sum += n
	}
	return sum
}

// storm keeps what is granted, or gives most of it back. Each client finds what is held.
func (h *holders) storm(gives bool) {
	// A charge is counted as far as the counter has room. If that is a byte, the takes of another client may use it up
	// until they are refused, and what they have added is given back.
	room := h.clients == 1 || h.bounded(math.MaxUint16) > math.MaxUint8
	concurrently(storm, func(i int) {
		if gives && room && i%100 == 10 && i < 5000 && !h.Algorithm.Rolling() {
			h.take(charge, i, 1)
		} else if back, ok := h.take(take, i, uint64(1+i%5)); ok && gives && i/goroutines%8 < 7 {
			h.giveBack(back)
		}
	})
	less := gives && h.Algorithm == window.TokenBucket // a give-back may come after tokens that have come back
	held := h.all()
	h.expect(gives || h.reached(held), "%d of %d are granted", held, h.limit.Max)
	h.expect(h.lost == 0 || less, "GiveBack returns false %d times", h.lost)
	most := held
	if less {
		most = h.limit.Max
	}
	h.counts(held, most)
}

// testEndings takes and gives back while windows end: by Reset, Set and Delete, and in time, unless the algorithm is
// rolling. Of each window, at most Max is held. Then all clients of the store do so, each with IDs of its own.
func testEndings(s *suite) {
	c := s.count("ends").upTo(s.bounded(20))
	c.holders(1).endings(!s.Algorithm.Rolling())
	c.on("all clients").in(time.Hour).holders(len(s.backends)).endings(false)
}

// endings takes, gives most of it back a little later, and ends windows: by calls, and maybe by advancing the clock.
func (h *holders) endings(inTime bool) {
	var ended atomic.Uint64 // by calls
	var taken [goroutines][]call
	concurrently(storm, func(i int) {
		mine := &taken[i%goroutines]
		if i/goroutines%3 > 0 && len(*mine) > 3 {
			h.giveBack((*mine)[0])
			*mine = (*mine)[1:]
		}
		switch {
		case inTime && i%8 == 4:
			h.Clock.Advance(20_000 * h.unit)
		case i%250 == 125:
			ended.Add(1)
			h.calls(i).try([]method{reset, set, deleteAll}[i/250%3], 0)
		case i%250 == 0:
			h.calls(i).try(peek, 1)
		default:
			if back, ok := h.take(take, i, uint64(1+i%5)); ok {
				*mine = append(*mine, back)
			}
		}
	})
	if !inTime {
		most := (ended.Load() + 1) * h.limit.Max
		h.expect(h.all() <= most, "%d are held, at most %d if %d calls end the window", h.all(), most, ended.Load())
	} else {
		for id, n := range h.held {
			h.expect(n <= h.limit.Max, "%d are held of window %d, whose limit is %d", n, id, h.limit.Max)
		}
		h.expect(len(h.held) >= 2 || h.Failed(), "there was %d window", len(h.held))
		last := h.calls(0).try(hit, 0)
		held := h.held[last.ID]
		h.expect(last.Count == held || h.Failed(), "the count is %d, and %d are held of this window", last.Count, held)
	}
	h.takesUpTo()
}

// takesUpTo has clients set the count to 0 and take until the limit is reached. All of them find that.
func (h *holders) takesUpTo() {
	h.calls(0).try(set, 0)
	for n := range h.limit.Max + 10 {
		a := h.calls(int(n)).try(take, 1)
		over := n >= h.limit.Max
		h.expect(a.Refused == over || h.Failed(), "after Set to 0, take %d of %d returns %v", n+1, h.limit.Max, a)
	}
	h.count.counts(h.limit.Max, h.limit.Max)
}
