package backendtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/window"
)

// flightProperties are of places in flight, which have nothing to do with algorithms.
var flightProperties = []property{
	{"in flight: a claim that is not valid, or has no context, does nothing", testClaims, []need{once, have(exchange)}},
	{"in flight: vectors", testFlightVectors, []need{once, have(exchange)}},
	{"in flight: keys and names are independent", testPlacesOfKeys, []need{once, have(exchange)}},
	{"in flight: ListPlaces returns who holds places or waits", testListPlaces, []need{once, have(exchange)}},
	{"in flight: concurrent claims are granted up to Max", testPlacesAtOnce, []need{once, have(exchange)}},
	{"in flight: random claims agree with a model", testFlightModel, []need{once, have(exchange)}},
}

// lease returns how long the places of a process are kept.
func (s *suite) lease() time.Duration { return 8000 * s.unit }

// claim makes a claim, which must succeed.
func (s *suite) claim(c window.Claim) window.Places {
	s.Helper()
	if c.Process != "" {
		c.Lease = s.lease()
	}
	return s.try(call{method: exchange, claims: []window.Claim{c}}).places[0]
}

// want is a want of n places under a Max.
func want(n, most uint64) []window.Want { return []window.Want{{N: n, Max: most}} }

// ready makes a store ready for strict claims on keys: one that has just been made grants them nothing for a lease.
func (s *suite) ready(keys ...string) {
	s.Helper()
	for _, key := range keys {
		s.claim(window.Claim{Key: key, Process: "ready", Seq: 1, Strict: true, Wants: want(1, 1)})
		s.claim(window.Claim{Key: key, Process: "ready", Seq: 2})
	}
	s.Clock.Advance(s.lease())
}

// held fails the test unless so many places of a key and name are used, and so many wants wait.
func (s *suite) held(key, name string, used, waiting uint64) {
	s.Helper()
	p := s.claim(window.Claim{Key: key, Name: name})
	s.expect(p.Used == used && p.Waiting == waiting, "%d places are used and %d wants wait, want %d and %d", p.Used, p.Waiting, used, waiting)
}

func testClaims(s *suite) {
	s.ready("k")
	valid := window.Claim{Key: "k", Process: "p", Seq: 100, Lease: s.lease(), Wants: want(1, 5)}
	for field, change := range map[string]func(*window.Claim){
		"Name":    func(c *window.Claim) { c.Name = strings.Repeat("n", 65) },
		"Process": func(c *window.Claim) { c.Process = "with space" },
		"Seq":     func(c *window.Claim) { c.Seq = 0 },
		"Lease":   func(c *window.Claim) { c.Lease = time.Nanosecond },
		"Held":    func(c *window.Claim) { c.Held = window.MaxPlaces + 1 },
		"HeldMax": func(c *window.Claim) { c.HeldMax = window.MaxPlaces + 1 },
		"Wants":   func(c *window.Claim) { c.Wants = make([]window.Want, window.MaxWants+1) },
		"Max":     func(c *window.Claim) { c.Wants = want(1, window.MaxPlaces+1) },
		"N":       func(c *window.Claim) { c.Wants = want(6, 5) },
	} {
		claim := valid
		change(&claim)
		var e *window.RangeError
		err := call{method: exchange, claims: []window.Claim{claim}}.of(s.Context(), s.Backend).err
		s.expect(errors.Is(err, window.ErrRange) && errors.As(err, &e) && e.Field == field, "a claim with a wrong %s returns error %v, want a window.RangeError", field, err)
	}
	err := s.Backend.Exchange(s.Context(), []window.Claim{valid}, nil)
	s.expect(errors.Is(err, window.ErrRange), "a claim without places for the answer returns error %v, want window.ErrRange", err)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	err = call{method: exchange, claims: []window.Claim{valid}}.of(ctx, s.Backend).err
	s.expect(errors.Is(err, context.Canceled), "Exchange returns error %v, want context.Canceled", err)
	s.held("k", "", 0, 0)
}

// flightVector is a sequence of claims on a virtual clock, with a lease of 8 s.
type flightVector struct {
	Name  string
	Steps []flightStep
}

// flightStep is a claim and its answer. One without a process only asks.
type flightStep struct {
	T         duration
	Process   string
	Seq       uint64 // 0: the next one
	Held      uint64
	HeldMax   uint64 `json:"held_max"`
	Strict    bool
	Wants     []window.Want
	Granted   []bool
	Used      uint64
	Waiting   *uint64  // missing: of no interest
	Next      duration // up to which places come back; 0: of no interest
	Lost      bool
	Forgotten bool
	Late      bool
	Why       string
}

func testFlightVectors(s *suite) {
	var vectors []flightVector
	s.readVectors("in-flight", &vectors)
	for _, v := range vectors {
		s.ready(v.Name)
		start, last := s.Clock.Now(), uint64(0) // the last token
		for i, step := range v.Steps {
			s.Clock.Advance(start.Add(time.Duration(step.T) * s.unit / time.Millisecond).Sub(s.Clock.Now()))
			c := window.Claim{Key: v.Name, Process: step.Process, Held: step.Held, HeldMax: step.HeldMax, Strict: step.Strict, Wants: step.Wants}
			if c.Process != "" {
				c.Seq = cmp.Or(step.Seq, uint64(i+3))
			}
			p := s.claim(c)
			last = s.tokensGrow(p, last)
			s.flightStep(&step, p)
			if s.Failed() {
				s.Fatalf("in vector %q, step %d: %s", v.Name, i+1, step.Why)
			}
		}
	}
}

// flightStep compares an answer with that of a vector.
func (s *suite) flightStep(step *flightStep, p window.Places) {
	s.Helper()
	granted := grants(p, len(step.Wants))
	s.expect(slices.Equal(granted, step.Granted), "%s wants %+v: granted is %v, want %v", step.Process, step.Wants, granted, step.Granted)
	s.expect(p.Used == step.Used, "after the claim of %q, %d places are used, want %d", step.Process, p.Used, step.Used)
	s.expect(step.Waiting == nil || p.Waiting == *step.Waiting, "%d wants wait, want %v", p.Waiting, step.Waiting)
	s.expect(p.Lost == step.Lost && p.Forgotten == step.Forgotten && p.Late == step.Late && p.Grace == 0, "the claim of %q returns %+v, want %+v", step.Process, p, *step)
	most := time.Duration(step.Next)*s.unit/time.Millisecond + s.precision()
	s.expect(step.Next == 0 || p.Next > 0 && p.Next <= most, "places come back in %v, want up to %v", p.Next, most)
}

// grants returns which of some wants were granted.
func grants(p window.Places, wants int) []bool {
	if wants == 0 {
		return nil
	}
	granted := make([]bool, wants)
	for i, token := range p.Tokens {
		granted[i] = token != 0
	}
	return granted
}

// tokensGrow fails the test unless all tokens are larger than the last one. It returns the new last one.
func (s *suite) tokensGrow(p window.Places, last uint64) uint64 {
	s.Helper()
	for _, token := range p.Tokens {
		s.expect(token == 0 || token > last, "token %d follows %d", token, last)
		last = max(last, token)
	}
	return last
}

func testPlacesOfKeys(s *suite) {
	keys := []string{"k", "", "K", "k:", "a:1", ":1", "k\x00", "\xff", "{k}", "é", strings.Repeat("k", 255), strings.Repeat("k", 256)}
	s.ready(keys...)
	all := call{method: exchange}
	for _, key := range keys {
		for _, name := range []string{"", "n", "N", "a", ":1"} {
			n := uint64(len(all.claims) + 1)
			c := window.Claim{Key: key, Name: name, Process: fmt.Sprint("p", n/2%2), Seq: 3, Wants: want(n, n)}
			s.held(key, name, 0, 0)
			p := s.claim(c)
			s.expect(p.Used == n && p.Tokens != nil, "a claim on %d places of %q, %q returns %+v", n, key, name, p)
			// Then, one that holds all but one place, with as many wants as there can be.
			c.Seq, c.Lease, c.Held, c.HeldMax = 4, s.lease(), n-1, n
			c.Wants = slices.Concat(want(1, n), want(1, n), want(1, n+1))
			for len(c.Wants) < window.MaxWants {
				c.Wants = append(c.Wants, want(1, 1)...)
			}
			all.claims = append(all.claims, c)
		}
	}
	for i, c := range all.claims {
		s.held(c.Key, c.Name, uint64(i+1), 0)
	}
	all.claims = append(all.claims, window.Claim{Key: "unused"}, window.Claim{Key: "unused", Name: "n"})
	for i, p := range s.try(all).places {
		if c := all.claims[i]; c.Process == "" {
			s.expect(p.Used == 0, "an unused key has %+v", p)
		} else {
			granted := grants(p, len(c.Wants))[:3]
			s.expect(p.Used == uint64(i+2) && slices.Equal(granted, []bool{true, false, true}), "claim %d of several returns %+v", i, p)
		}
	}
	if have(peek)(s) == "" {
		s.count("k").do(peek, 0) // places are no hits
	}
}

// lists fails the test unless ListPlaces of keys returns the places of some keys and names, with leases that end in up
// to a time.
func (s *suite) lists(ends time.Duration, want []window.ListedPlaces, keys ...string) {
	s.Helper()
	got := s.try(call{method: listPlaces, keys: keys}).listed
	order := func(a, b window.ListedPlaces) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	for _, p := range got {
		for i, h := range p.ByProcess {
			late := h.Held > 0 && (h.LeaseEnds <= 0 || h.LeaseEnds > ends+s.precision())
			s.expect(!late && (h.Held > 0 || h.LeaseEnds == 0), "ListPlaces: a lease ends in %v, want up to %v: %+v", h.LeaseEnds, ends, h)
			p.ByProcess[i].LeaseEnds = 0
		}
	}
	same := func(a, b window.ListedPlaces) bool {
		return order(a, b) == 0 && a.Used == b.Used && a.Waiting == b.Waiting && a.Digest == b.Digest && slices.Equal(a.ByProcess, b.ByProcess)
	}
	s.expect(slices.EqualFunc(got, want, same), "ListPlaces(%.40q) returns %+v, want %+v", keys, got, want)
}

func testListPlaces(s *suite) {
	long := strings.Repeat("k", 256)
	s.ready("k", "other", long)
	claim := func(key, name, process string, seq, held uint64, wants ...window.Want) {
		s.Helper()
		s.claim(window.Claim{Key: key, Name: name, Process: process, Seq: seq, Held: held, HeldMax: 3, Wants: wants})
	}
	claim("k", "", "p", 3, 0, want(3, 3)...)
	claim("k", "", "q", 3, 0, window.Want{N: 2, Max: 3, Wait: true}, window.Want{N: 1, Max: 3, Wait: true})
	claim("k", "", "p", 4, 2)
	claim("k", "n", "p", 3, 0, want(4, 10)...)
	claim("other", "n:1}", "p", 3, 0, want(5, 10)...)
	claim(long, "", "p", 3, 0, want(6, 10)...)
	of := func(key, name string, used uint64) window.ListedPlaces {
		return window.ListedPlaces{Key: key, Name: name, Used: used, ByProcess: []window.Holder{{Process: "p", Held: used}}}
	}
	waits, named, other := of("k", "", 2), of("k", "n", 4), of("other", "n:1}", 5)
	waits.Waiting = 2
	waits.ByProcess = append(waits.ByProcess, window.Holder{Process: "q", Waiting: 2})
	s.lists(s.lease(), []window.ListedPlaces{waits, named}, "k", "nobody")
	s.lists(s.lease(), []window.ListedPlaces{waits, named, other}, "k", "other", "nobody")
	digest := s.try(call{method: listPlaces, keys: []string{long}}).listed
	if len(digest) != 1 || digest[0].Digest != (digest[0].Key != long) {
		s.Fatalf("ListPlaces of a long key returns %+v", digest)
	}
	last := of(digest[0].Key, "", 6)
	last.Digest = digest[0].Digest
	s.lists(s.lease(), []window.ListedPlaces{waits, named, other, last})
	for range s.Backend.ListPlaces(s.Context()) {
		break
	}
	s.Clock.Advance(s.lease() / 2)
	s.lists(s.lease()/2, []window.ListedPlaces{of("k", "", 2), named}, "k") // q has lost its position
	s.Clock.Advance(s.lease()/2 + time.Millisecond)
	s.lists(0, nil, "k", "other", long)

	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	err := call{method: listPlaces}.of(ctx, s.Backend).err
	s.expect(errors.Is(err, context.Canceled), "ListPlaces returns error %v, want context.Canceled", err)
}

// testPlacesAtOnce makes claims of many processes at once.
func testPlacesAtOnce(s *suite) {
	const most, rounds = 7, 40
	s.ready("k")
	var held atomic.Int64
	concurrently(32, func(i int) {
		c := window.Claim{Key: "k", Process: fmt.Sprint("p", i), Lease: s.lease(), HeldMax: most}
		claim := func(wants ...window.Want) (n uint64) {
			c.Seq++
			c.Wants = wants
			p := s.try(call{method: exchange, second: s.clients()[i%len(s.clients())], claims: []window.Claim{c}}).places[0]
			s.expect(!p.Lost && !p.Late && p.Used <= most, "a claim returns %+v", p)
			for j, token := range p.Tokens {
				if token != 0 {
					n += wants[j].N
				}
			}
			return n
		}
		for range rounds {
			n := int64(claim(append(want(1, most), want(uint64(1+i%3), most)...)...))
			got := held.Add(n)
			s.expect(got <= most, "%d places of %d are held", got, most)
			runtime.Gosched() // others claim meanwhile, also on one processor
			held.Add(-n)
			claim()
		}
	})
	s.held("k", "", 0, 0)
	p := s.claim(window.Claim{Key: "k", Process: "p", Seq: 3, Wants: want(most, most)})
	s.expect(p.Used == most, "then, a claim on all places returns %+v", p)
}

// testFlightModel compares random claims of processes with a ledger in memory.
func testFlightModel(s *suite) {
	for range 3 {
		seed := rand.Uint64()
		s.Logf("seed %d", seed)
		key := fmt.Sprint("model", seed)
		s.ready(key)
		start, r := s.Clock.Now(), rand.New(rand.NewPCG(seed, 1))
		model := ledger.New(64, func() time.Duration { return s.Clock.Now().Sub(start) })
		processes, last := make([]window.Claim, 4), uint64(0)
		for step := range 400 {
			if r.IntN(4) == 0 {
				s.Clock.Advance(time.Duration(r.Int64N(int64(s.lease())/4)).Truncate(time.Millisecond) + s.precision())
			}
			i := r.IntN(len(processes))
			c := &processes[i]
			c.Key, c.Process, c.Lease = key, fmt.Sprint("p", i), s.lease()
			vary(c, r)
			want := model.Exchange(c)
			got := s.try(call{method: exchange, second: s.clients()[r.IntN(len(s.clients()))], claims: []window.Claim{*c}}).places[0]
			last = s.tokensGrow(got, last)
			granted := grants(got, len(c.Wants))
			same := slices.Equal(granted, grants(want, len(c.Wants))) && got.Lost == want.Lost && got.Forgotten == want.Forgotten
			if !same || got.Late != want.Late || got.Used != want.Used || got.Waiting != want.Waiting {
				s.Fatalf("step %d: claim %+v: got %+v, want %+v", step, *c, got, want)
			}
			for i, w := range c.Wants {
				if granted[i] {
					c.Held += w.N
				}
			}
			if got.Lost {
				c.Held = 0
			}
		}
	}
}

// vary makes a random claim of one that was made.
func vary(c *window.Claim, r *rand.Rand) {
	c.Seq++
	if r.IntN(20) == 0 {
		c.Seq -= min(uint64(r.IntN(4)), c.Seq-1)
	}
	if r.IntN(10) == 0 {
		c.Held = uint64(r.IntN(6))
	} else if r.IntN(2) == 0 {
		c.Held -= min(c.Held, uint64(r.IntN(4)))
	}
	c.HeldMax = uint64(r.IntN(8))
	c.Strict = r.IntN(2) == 0
	c.Wants = nil
	for range r.IntN(4) {
		most := uint64(1 + r.IntN(8))
		c.Wants = append(c.Wants, window.Want{N: 1 + uint64(r.IntN(int(most))), Max: most, Wait: r.IntN(2) == 0})
	}
}
