package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/window"
)

// flightTests are for places in flight, which have nothing to do with algorithms.
var flightTests = []subtest{
	{"in flight: a claim that is not valid, or has no context, does nothing", testClaims, "Exchange", once},
	{"in flight: up to Max places are held", testPlaces, "Exchange", once},
	{"in flight: a process that is silent for a lease holds nothing", testLease, "Exchange", once},
	{"in flight: a late claim does nothing, and a later one says the whole truth", testLate, "Exchange", once},
	{"in flight: what the store does not know is believed as long as it fits", testBelieved, "Exchange", once},
	{"in flight: a process waits in line", testLine, "Exchange", once},
	{"in flight: a process that is silent loses its position in line", testLapse, "Exchange", once},
	{"in flight: keys and names are independent", testPlacesOfKeys, "Exchange", once},
	{"in flight: ListPlaces returns who holds places or waits", testListPlaces, "Exchange", once},
	{"in flight: concurrent claims are granted up to Max", testPlacesAtOnce, "Exchange", once},
	{"in flight: random claims agree with a model", testFlightModel, "Exchange", once},
}

// claims makes claims on places in flight, each with a larger Seq than the one before.
type claims struct {
	calls
	lease time.Duration
	seq   uint64
}

// inFlight returns what makes claims on keys. A store that has just been made grants nothing to strict ones for a
// lease.
func (c calls) inFlight(keys ...string) *claims {
	c.Helper()
	f := &claims{calls: c, lease: c.stretch(8 * time.Second)}
	for _, key := range keys {
		f.claim(window.Claim{Key: key, Process: "first", Strict: true, Wants: []window.Want{now(1, 1)}})
		f.claim(window.Claim{Key: key, Process: "first"})
	}
	c.Clock.Advance(f.lease)
	return f
}

// claim makes a claim, which must succeed.
func (f *claims) claim(claim window.Claim) window.Places {
	f.Helper()
	f.seq++
	claim.Seq = f.seq
	claim.Lease = f.lease
	return f.exchange(f.Backend, claim)
}

func (f *claims) exchange(b window.Backend, claim window.Claim) window.Places {
	f.Helper()
	places := make([]window.Places, 1)
	err := b.Exchange(f.Context(), []window.Claim{claim}, places)
	if err == nil {
		err = places[0].Err
	}
	if err != nil {
		f.Fatalf("Exchange(%+v): %v", claim, err)
	}
	if n := len(places[0].Tokens); n != 0 && n != len(claim.Wants) {
		f.Fatalf("Exchange of %d wants returns %d tokens", len(claim.Wants), n)
	}
	return places[0]
}

// by makes a claim of a process that holds places under a Max, and wants others.
func (f *claims) by(process string, held, most uint64, wants ...window.Want) window.Places {
	f.Helper()
	return f.claim(window.Claim{Key: "k", Process: process, Held: held, HeldMax: most, Wants: wants})
}

// now wants n places now, and later waits for them.
func now(n, most uint64) window.Want   { return window.Want{N: n, Max: most} }
func later(n, most uint64) window.Want { return window.Want{N: n, Max: most, Wait: true} }

// wants fails the test unless exactly these wants are granted, and so many places are used.
func (f *claims) wants(p window.Places, used uint64, granted ...bool) {
	f.Helper()
	f.expect(!p.Lost && !p.Late, "the claim is lost or late: %+v", p)
	for i, want := range granted {
		got := p.Tokens != nil && p.Tokens[i] != 0
		f.expect(got == want, "want %d is granted: %v, want %v", i+1, got, want)
	}
	f.expect(p.Used == used, "%d places are used, want %d", p.Used, used)
}

// used fails the test unless so many places are held, and so many wants wait.
func (f *claims) used(key, name string, used, waiting uint64) {
	f.Helper()
	p := f.exchange(f.Backend, window.Claim{Key: key, Name: name})
	f.expect(p.Used == used && p.Waiting == waiting, "%d places are used and %d wants wait, want %d and %d", p.Used, p.Waiting, used, waiting)
}

func testClaims(c calls) {
	f := c.inFlight("k")
	valid := window.Claim{Key: "k", Process: "p", Seq: 100, Lease: f.lease, Wants: []window.Want{now(1, 5)}}
	call := func(ctx context.Context, claim window.Claim) error {
		return c.Backend.Exchange(ctx, []window.Claim{claim}, make([]window.Places, 1))
	}
	for field, change := range map[string]func(*window.Claim){
		"Name":    func(c *window.Claim) { c.Name = strings.Repeat("n", 65) },
		"Process": func(c *window.Claim) { c.Process = "with space" },
		"Seq":     func(c *window.Claim) { c.Seq = 0 },
		"Lease":   func(c *window.Claim) { c.Lease = time.Nanosecond },
		"Held":    func(c *window.Claim) { c.Held = window.MaxPlaces + 1 },
		"HeldMax": func(c *window.Claim) { c.HeldMax = window.MaxPlaces + 1 },
		"Wants":   func(c *window.Claim) { c.Wants = make([]window.Want, window.MaxWants+1) },
		"Max":     func(c *window.Claim) { c.Wants = []window.Want{now(1, window.MaxPlaces+1)} },
		"N":       func(c *window.Claim) { c.Wants = []window.Want{now(6, 5)} },
	} {
		claim := valid
		change(&claim)
		var e *window.RangeError
		if err := call(c.Context(), claim); !errors.Is(err, window.ErrRange) || !errors.As(err, &e) || e.Field != field {
			c.Errorf("a claim with a wrong %s returns error %v, want a window.RangeError", field, err)
		}
	}
	if err := c.Backend.Exchange(c.Context(), []window.Claim{valid}, nil); !errors.Is(err, window.ErrRange) {
		c.Errorf("a claim without places for the answer returns error %v, want window.ErrRange", err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	if err := call(ctx, valid); !errors.Is(err, context.Canceled) {
		c.Errorf("Exchange returns error %v, want context.Canceled", err)
	}
	f.used("k", "", 0, 0)
}

func testPlaces(c calls) {
	f := c.inFlight("k")
	p := f.by("p", 0, 0, now(1, 5), now(3, 5))
	f.wants(p, 4, true, true)
	q := f.by("q", 0, 0, now(2, 5), now(1, 5), now(1, 5))
	f.wants(q, 5, false, true, false)
	if p.Tokens != nil && q.Tokens != nil && (p.Tokens[0] >= p.Tokens[1] || p.Tokens[1] >= q.Tokens[1]) {
		f.Errorf("tokens do not grow: %v, %v", p.Tokens, q.Tokens)
	}
	f.wants(f.by("p", 4, 5), 5)
	f.wants(f.by("p", 4, 2), 5) // a smaller Max takes nothing away
	f.wants(f.by("r", 0, 0, now(1, 3)), 5, false)
	f.wants(f.by("r", 0, 0, now(2, 7), now(1, 7)), 7, true, false)
	f.wants(f.by("p", 1, 5), 4)
	f.wants(f.by("q", 0, 0, now(2, 5)), 5, true) // gives back and takes
	f.wants(f.by("r", 0, 0), 3)
	f.used("k", "", 3, 0)
}

func testLease(c calls) {
	f := c.inFlight("k")
	f.wants(f.by("p", 0, 0, now(3, 5)), 3, true)
	c.Clock.Advance(f.lease / 2)
	f.wants(f.by("q", 0, 0, now(1, 5)), 4, true)
	c.Clock.Advance(f.lease/2 - f.lease/100)
	f.wants(f.by("q", 1, 5, now(2, 5)), 4, false)
	f.wants(f.by("p", 3, 5), 4)
	c.Clock.Advance(f.lease * 9 / 10)
	p := f.by("q", 1, 5, now(2, 5))
	f.wants(p, 4, false)
	if p.Next <= 0 || p.Next > f.lease/10+c.Precision {
		f.Errorf("places come back in %v, want up to %v", p.Next, f.lease/10)
	}
	c.Clock.Advance(f.lease/10 + max(c.Precision, time.Millisecond))
	f.wants(f.by("q", 1, 5, now(4, 5)), 5, true)
	c.Clock.Advance(f.lease + max(c.Precision, time.Millisecond))
	f.used("k", "", 0, 0)
}

func testLate(c calls) {
	f := c.inFlight("k")
	f.wants(f.by("p", 0, 0, now(2, 5)), 2, true)
	f.wants(f.by("p", 2, 5, now(1, 5)), 3, true) // its answer is lost, and the next claim does not know of it
	f.wants(f.by("p", 2, 5, now(1, 5)), 3, true)
	for _, seq := range []uint64{f.seq, f.seq - 1, 1} {
		p := f.exchange(c.Backend, window.Claim{Key: "k", Process: "p", Seq: seq, Lease: f.lease, Wants: []window.Want{now(1, 5)}})
		if !p.Late || p.Tokens != nil || p.Used != 3 {
			f.Errorf("claim %d after %d returns %+v", seq, f.seq, p)
		}
	}
	f.wants(f.by("p", 1, 5), 1)
	f.used("k", "", 1, 0)
}

func testBelieved(c calls) {
	f := c.inFlight("k")
	forgotten := func(p window.Places, used uint64, want bool) {
		c.Helper()
		f.wants(p, used)
		c.expect(p.Forgotten == want, "forgotten is %v, want %v: %+v", p.Forgotten, want, p)
	}
	strict := func(process string, held uint64, lost bool, used uint64) {
		c.Helper()
		p := f.claim(window.Claim{Key: "k", Process: process, Strict: true, Held: held, HeldMax: 5, Wants: []window.Want{now(1, 5)}})
		c.expect(p.Lost == lost && p.Used == used && p.Grace == 0, "a strict claim on %d places returns %+v, want lost %v, used %d", held, p, lost, used)
	}
	f.wants(f.by("p", 0, 0, now(1, 5)), 1, true)
	forgotten(f.by("q", 3, 5), 4, true) // as after a loss of data
	forgotten(f.by("q", 3, 5), 4, false)
	strict("r", 2, true, 5)
	strict("s", 1, true, 5)
	forgotten(f.by("s", 1, 5), 6, true) // without strictness, it is believed
	f.wants(f.by("t", 0, 0, now(1, 6)), 6, false)
	forgotten(f.by("s", 0, 5), 5, false)
	f.wants(f.by("q", 0, 5), 2)
	f.wants(f.by("r", 0, 5), 1)
	strict("p", 4, false, 5)
	strict("p", 6, true, 1)
}

func testLine(c calls) {
	f := c.inFlight("k")
	f.wants(f.by("p", 0, 0, now(3, 4)), 3, true)
	p := f.by("large", 0, 0, later(3, 4), later(1, 4), now(1, 4))
	f.wants(p, 3, false, false, false) // nothing overtakes what waits
	if p.Waiting != 2 {
		f.Errorf("%d wants wait, want 2", p.Waiting)
	}
	f.wants(f.by("small", 0, 0, later(1, 4)), 3, false) // it leaves room for the first in line
	f.used("k", "", 3, 3)
	f.wants(f.by("small", 0, 0, now(1, 7), later(1, 4)), 4, true, false)
	f.wants(f.by("small", 0, 0, later(1, 4)), 3, false)
	f.wants(f.by("p", 1, 4), 1)
	f.wants(f.by("small", 0, 0, later(1, 4)), 1, false)
	f.wants(f.by("large", 0, 0, later(3, 4), later(1, 4)), 4, true, false)
	f.wants(f.by("p", 0, 0, later(1, 4)), 3, false)     // it is third
	f.wants(f.by("large", 3, 4, later(1, 4)), 3, false) // it went to the end when it got something
	f.wants(f.by("small", 0, 0, later(1, 4)), 4, true)
	f.wants(f.by("small", 0, 0), 3)
	f.wants(f.by("p", 0, 0, later(1, 4)), 3, false)
	f.wants(f.by("large", 3, 4, later(1, 4)), 4, true)
	f.wants(f.by("large", 3, 4, later(1, 4)), 3, false)
	f.wants(f.by("p", 0, 0, later(1, 4)), 4, true)
	f.wants(f.by("p", 0, 0), 3)
	f.wants(f.by("large", 3, 4), 3) // it does not wait any more
	f.used("k", "", 3, 0)

	f.wants(f.by("low", 0, 0, later(1, 3)), 3, false)
	f.wants(f.by("high", 0, 0, now(1, 4)), 4, true) // one with a larger Max need not wait for it
	f.wants(f.by("high", 0, 0, later(2, 4)), 3, false)
	f.wants(f.by("large", 2, 4), 2)
	f.wants(f.by("low", 0, 0, later(1, 3)), 2, false) // and is before it in line
	f.wants(f.by("high", 0, 0), 2)
	f.wants(f.by("low", 0, 0, later(1, 3)), 3, true)
	f.wants(f.by("low", 0, 0), 2)
	f.wants(f.by("large", 2, 4, now(1, 4)), 3, true)

	f.wants(f.by("dead", 0, 0, later(2, 4)), 3, false)
	f.wants(f.by("small", 0, 0, now(1, 4)), 3, false)
	c.Clock.Advance(f.lease/4 - f.lease/100)
	f.wants(f.by("small", 0, 0, now(1, 4)), 3, false)
	c.Clock.Advance(f.lease/100 + max(c.Precision, time.Millisecond))
	f.used("k", "", 3, 0)
	f.wants(f.by("small", 0, 0, now(1, 4)), 4, true)
}

// testLapse has a process behind the first in line be silent for too long: it has lost its position to those behind it.
func testLapse(c calls) {
	f := c.inFlight("k")
	f.wants(f.by("p", 0, 0, now(3, 3)), 3, true)
	for _, process := range []string{"first", "silent", "last"} {
		f.wants(f.by(process, 0, 0, later(1, 3)), 3, false)
	}
	c.Clock.Advance(f.lease / 5)
	f.by("first", 0, 0, later(1, 3))
	f.by("last", 0, 0, later(1, 3))
	c.Clock.Advance(f.lease / 10)
	f.wants(f.by("silent", 0, 0, later(1, 3)), 3, false)
	f.wants(f.by("p", 2, 3), 2)
	f.wants(f.by("first", 0, 0, later(1, 3)), 3, true)
	f.wants(f.by("first", 0, 0), 2)
	f.wants(f.by("silent", 0, 0, later(1, 3)), 2, false)
	f.wants(f.by("last", 0, 0, later(1, 3)), 3, true)
}

func testPlacesOfKeys(c calls) {
	keys := []string{"k", "", "K", "k:", "a:1", ":1", "k\x00", "\xff", "{k}", "é", strings.Repeat("k", 255), strings.Repeat("k", 256)}
	f := c.inFlight(keys...)
	var all []window.Claim
	for _, key := range keys {
		for _, name := range []string{"", "n", "N", "a", ":1"} {
			n := uint64(len(all) + 1)
			all = append(all, window.Claim{Key: key, Name: name, Process: fmt.Sprint("p", n/2%2), Wants: []window.Want{now(n, n)}})
			f.used(key, name, 0, 0)
			f.wants(f.claim(all[n-1]), n, true)
		}
	}
	for i := range all { // now one claim on each, with as many wants as there can be, and two that only ask
		claim := &all[i]
		held := uint64(i + 1)
		f.used(claim.Key, claim.Name, held, 0)
		f.seq++
		claim.Seq = f.seq
		claim.Lease = f.lease
		claim.Held = held - 1
		claim.HeldMax = held
		claim.Wants = []window.Want{now(1, held), now(1, held), now(1, held+1)}
		for len(claim.Wants) < window.MaxWants {
			claim.Wants = append(claim.Wants, now(1, 1))
		}
	}
	all = append(all, window.Claim{Key: "unused"}, window.Claim{Key: "unused", Name: "n"})
	places := make([]window.Places, len(all))
	if err := c.Backend.Exchange(c.Context(), all, places); err != nil {
		c.Fatalf("Exchange of %d claims: %v", len(all), err)
	}
	for i, p := range places {
		if p.Err != nil {
			c.Fatalf("claim %d: %v", i, p.Err)
		}
		if all[i].Process == "" {
			f.wants(p, 0)
		} else {
			f.wants(p, uint64(i+2), true, false, true)
		}
	}
	if !c.Failed() && c.without("Peek") == "" {
		c.in(time.Minute).ended() // places are no hits
	}
}

// places returns what ListPlaces returns of keys, or of all, by the stored key and name.
func (f *claims) places(keys ...string) map[[2]string]window.ListedPlaces {
	f.Helper()
	all := map[[2]string]window.ListedPlaces{}
	for p, err := range f.Backend.ListPlaces(f.Context(), keys...) {
		if err != nil {
			f.Fatalf("ListPlaces(%q): %v", keys, err)
		}
		all[[2]string{p.Key, p.Name}] = p
	}
	return all
}

// lists fails the test unless ListPlaces returns so many places and wants of a key and name, of these processes.
// Leases end in up to a time.
func (f *claims) lists(p window.ListedPlaces, used, waiting uint64, ends time.Duration, holders ...window.Holder) {
	f.Helper()
	for i, h := range p.ByProcess {
		if h.Held > 0 && (h.LeaseEnds <= 0 || h.LeaseEnds > ends+f.Precision) || h.Held == 0 && h.LeaseEnds != 0 {
			f.Errorf("ListPlaces: a lease ends in %v, want up to %v: %+v", h.LeaseEnds, ends, h)
		}
		p.ByProcess[i].LeaseEnds = 0
	}
	if p.Used != used || p.Waiting != waiting || !slices.Equal(p.ByProcess, holders) {
		f.Errorf("ListPlaces returns %+v, want %d used, %d waiting: %+v", p, used, waiting, holders)
	}
}

func testListPlaces(c calls) {
	long := strings.Repeat("k", 256)
	f := c.inFlight("k", "other", long)
	f.by("p", 0, 0, now(2, 3), now(1, 3))
	f.by("q", 0, 0, later(2, 3), later(1, 3))
	f.by("p", 2, 3)
	other := func(key, name string, n uint64) {
		f.wants(f.claim(window.Claim{Key: key, Name: name, Process: "p", Wants: []window.Want{now(n, 10)}}), n, true)
	}
	other("k", "n", 4)
	other("other", "n:1}", 5)
	other(long, "", 6)
	inLine, mine := window.Holder{Process: "q", Waiting: 2}, window.Holder{Process: "p", Held: 2}
	for _, keys := range [][]string{nil, {"k", "other", "nobody"}} {
		all := f.places(keys...)
		f.lists(all[[2]string{"k"}], 2, 2, f.lease, mine, inLine)
		f.lists(all[[2]string{"k", "n"}], 4, 0, f.lease, window.Holder{Process: "p", Held: 4})
		f.lists(all[[2]string{"other", "n:1}"}], 5, 0, f.lease, window.Holder{Process: "p", Held: 5})
	}
	all := f.places("k", "nobody")
	f.expect(len(all) == 2, "ListPlaces of a key with two names returns %+v", all)
	for _, p := range f.places(long) {
		f.expect(p.Digest == (p.Key != long), "ListPlaces of a long key returns %+v", p)
		f.lists(p, 6, 0, f.lease, window.Holder{Process: "p", Held: 6})
	}
	for range f.places() {
		break
	}
	c.Clock.Advance(f.lease / 2)
	f.lists(f.places("k")[[2]string{"k"}], 2, 0, f.lease/2, mine) // q has lost its position
	c.Clock.Advance(f.lease/2 + max(c.Precision, time.Millisecond))
	f.expect(len(f.places("k", "other", long)) == 0, "ListPlaces lists what is over")

	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	var last error
	for _, last = range f.Backend.ListPlaces(ctx) {
	}
	f.expect(errors.Is(last, context.Canceled), "ListPlaces returns error %v, want context.Canceled", last)
}

// testPlacesAtOnce makes claims of many processes at once.
func testPlacesAtOnce(c calls) {
	const most, rounds = 7, 40
	f := c.inFlight("k")
	var held atomic.Int64
	concurrently(32, func(i int) {
		seq, process := uint64(0), fmt.Sprint("p", i)
		claim := func(n uint64, wants ...window.Want) uint64 {
			seq++
			p := f.exchange(c.clients()[i%len(c.clients())].Backend, window.Claim{Key: "k", Process: process, Seq: seq, Lease: f.lease, Held: n, HeldMax: most, Wants: wants})
			c.expect(!p.Lost && !p.Late && p.Used <= most, "a claim returns %+v", p)
			for j, token := range p.Tokens {
				if token != 0 {
					n += wants[j].N
				}
			}
			return n
		}
		for range rounds {
			n := claim(0, now(1, most), now(uint64(1+i%3), most))
			if got := held.Add(int64(n)); got > most {
				c.Errorf("%d places of %d are held", got, most)
			}
			runtime.Gosched() // others claim meanwhile, also on one processor
			held.Add(-int64(n))
			claim(0)
		}
	})
	f.used("k", "", 0, 0)
	f.wants(f.by("p", 0, 0, now(most, most)), most, true)
}

// testFlightModel compares random claims of processes with a ledger in memory.
func testFlightModel(c calls) {
	for range 3 {
		seed := rand.Uint64()
		c.Logf("seed %d", seed)
		key := fmt.Sprint("model", seed)
		f, r := c.inFlight(key), rand.New(rand.NewPCG(seed, 1))
		start := c.Clock.Now()
		model := ledger.New(64, func() time.Duration { return c.Clock.Now().Sub(start) })
		process := make([]window.Claim, 4)
		var token uint64
		for i := range process {
			process[i] = window.Claim{Key: key, Process: fmt.Sprint("p", i), Lease: f.lease}
		}
		for step := range 400 {
			if r.IntN(4) == 0 {
				c.Clock.Advance(time.Duration(r.Int64N(int64(f.lease)/4)).Truncate(time.Millisecond) + c.Precision)
			}
			p := &process[r.IntN(len(process))]
			p.Seq++
			if r.IntN(20) == 0 {
				p.Seq -= min(uint64(r.IntN(4)), p.Seq-1)
			}
			if r.IntN(10) == 0 {
				p.Held = uint64(r.IntN(6))
			} else if r.IntN(2) == 0 {
				p.Held -= min(p.Held, uint64(r.IntN(4)))
			}
			p.HeldMax = uint64(r.IntN(8))
			p.Strict = r.IntN(2) == 0
			p.Wants = nil
			for range r.IntN(4) {
				most := uint64(1 + r.IntN(8))
				p.Wants = append(p.Wants, window.Want{N: 1 + uint64(r.IntN(int(most))), Max: most, Wait: r.IntN(2) == 0})
			}
			want := model.Exchange(p)
			got := f.exchange(c.clients()[r.IntN(len(c.clients()))].Backend, *p)
			for i, t := range got.Tokens {
				c.expect(t == 0 || t > token, "token %d follows %d", t, token)
				if t != 0 {
					token = t
					p.Held += p.Wants[i].N
				}
			}
			if a, b := answer(got, p), answer(want, p); !reflect.DeepEqual(a, b) {
				c.Fatalf("step %d: claim %+v: got %+v, want %+v", step, *p, a, b)
			}
			if got.Lost {
				p.Held = 0
			}
		}
	}
}

// answer returns what is the same for all backends.
func answer(p window.Places, claim *window.Claim) any {
	granted := make([]bool, len(claim.Wants))
	for i, t := range p.Tokens {
		granted[i] = t != 0
	}
	return struct {
		granted               []bool
		lost, forgotten, late bool
		used, waiting         uint64
	}{granted, p.Lost, p.Forgotten, p.Late, p.Used, p.Waiting}
}
