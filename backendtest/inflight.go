package backendtest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// lease returns how long the places of a process are kept.
func (s *suite) lease() time.Duration { return 8000 * s.unit }

// claim makes a claim, and compares the answer with that of the model.
func (s *suite) claim(c window.Claim) window.Places {
	s.Helper()
	if c.Process != "" {
		c.Lease = s.lease()
	}
	return s.do(call{method: exchange, claims: []window.Claim{c}}).places[0]
}

// place is what places are of: a key, and a name.
type place struct{ key, name string }

// exchanges makes claims in the model, which is a ledger in memory. Vectors say what that must do.
func (s *suite) exchanges(m made) {
	s.Helper()
	for i := range m.claims {
		c, got := &m.claims[i], m.places[i]
		want, _ := s.ledger.Exchange(c)
		of := place{c.Key, c.Name}
		for _, token := range got.Tokens {
			s.expect(token == 0 || token > s.tokens[of], "token %d follows %d", token, s.tokens[of])
			s.tokens[of] = max(token, s.tokens[of])
		}
		same := slices.Equal(grants(got, c), grants(want, c)) && got.Lost == want.Lost &&
			got.Forgotten == want.Forgotten && got.Late == want.Late && got.Used == want.Used &&
			got.Waiting == want.Waiting && (got.Grace > 0) == (want.Grace > 0)
		if changes := c.Process != "" && !want.Late; changes && want.Next > 0 { // places may come back before
			same = same && got.Next > 0 && got.Next <= want.Next+s.precision()
		}
		s.expect(same, "the claim %+v returns %+v, want %+v", *c, got, want)
	}
}

// grants returns which of the wants of a claim were granted.
func grants(p window.Places, c *window.Claim) []bool {
	granted := make([]bool, len(c.Wants))
	for i, token := range p.Tokens {
		granted[i] = token != 0
	}
	return granted
}

// want is a want of n places under a Max.
func want(n, most uint64) []window.Want { return []window.Want{{N: n, Max: most}} }

// ready makes a store ready for strict claims on keys: one that has just been made grants them nothing for a lease.
func (s *suite) ready(keys ...string) {
	s.Helper()
	for _, key := range keys {
		c := window.Claim{Key: key, Process: "ready", Seq: 1, Lease: s.lease(), Strict: true, Wants: want(1, 1)}
		s.try(call{method: exchange, claims: []window.Claim{c}})
		c.Seq, c.Wants = 2, nil
		s.try(call{method: exchange, claims: []window.Claim{c}})
	}
	s.Clock.Advance(s.lease())
}

// flightVector is a sequence of claims on a virtual clock, with a lease of 8 s. The file has the answers, too: the
// model agrees with them.
type flightVector struct {
	Name  string
	Steps []flightStep
}

// flightStep is a claim at a time since the start. One without a process only asks. A Seq of 0 is the next one.
type flightStep struct {
	T duration
	window.Claim
}

func testFlights(s *suite) {
	var all []flightVector
	s.readVectors("in-flight", &all)
	for _, f := range all {
		s.replayClaims(&f)
	}
}

// replayClaims makes the claims of a vector, on a key of its own, and returns the answers.
func (s *suite) replayClaims(f *flightVector) (answers []window.Places) {
	s.ready(f.Name)
	start := s.Clock.Now()
	for i, step := range f.Steps {
		s.Clock.Advance(start.Add(time.Duration(step.T) * s.unit / time.Millisecond).Sub(s.Clock.Now()))
		c := step.Claim
		c.Key = f.Name
		if c.Process != "" {
			c.Seq = cmp.Or(step.Seq, uint64(i+3))
		}
		answers = append(answers, s.claim(c))
		if s.Failed() {
			s.Fatalf("vector %q, step %d", f.Name, i+1)
		}
	}
	return answers
}

func testPlacesOfKeys(s *suite) {
	keys := []string{"k", "", "K", "k:", "a:1", ":1", "k\x00", "\xff", "{k}", "é", strings.Repeat("k", 255),
		strings.Repeat("k", 256)}
	s.ready(keys...)
	all := call{method: exchange}
	for _, key := range keys {
		for _, name := range []string{"", "n", "N", "a", ":1"} {
			n := uint64(len(all.claims) + 1)
			c := window.Claim{Key: key, Name: name, Process: fmt.Sprint("p", n/2%2), Seq: 3, Lease: s.lease(),
				Wants: want(n, n)}
			for len(c.Wants) < window.MaxWants {
				c.Wants = append(c.Wants, want(1, 1)...) // as many as there can be
			}
			all.claims = append(all.claims, c)
		}
	}
	s.do(all)
	for _, c := range all.claims {
		s.claim(window.Claim{Key: c.Key, Name: c.Name})
	}
	if s.has(peek) {
		s.count("k").do(peek, 0) // places are no hits
	}
	if !s.has(listPlaces) {
		return
	}
	listed := s.try(call{method: listPlaces}).held
	s.expect(len(listed) == len(all.claims), "ListPlaces returns %d counts, want %d", len(listed), len(all.claims))
	for _, p := range listed {
		s.expect(p.Digest != slices.Contains(keys, p.Key), "ListPlaces returns %+v", p)
	}
	for range s.Backend.ListPlaces(s.Context()) {
		break
	}
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
			p := s.try(call{method: exchange, client: i % len(s.backends), claims: []window.Claim{c}}).places[0]
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
	s.claim(window.Claim{Key: "k"}) // nothing is held
	s.claim(window.Claim{Key: "k", Process: "p", Seq: 3, Wants: want(most, most)})
}

// testFlightModel makes random claims of processes on three counts, and lists what they hold.
func testFlightModel(s *suite) {
	for seed := range uint64(3) {
		s.Logf("seed %d", seed)
		r, key := rand.New(rand.NewPCG(seed, 1)), fmt.Sprint("model", seed)
		keys := []string{key, key + "1"}
		s.ready(keys...)
		var claims [3][3]window.Claim // of counts and processes
		for i := range 9 {
			name := []string{"", "n", "n:1}"}[i/3]
			claims[i/3][i%3] = window.Claim{Key: keys[i/6], Name: name, Process: fmt.Sprint("p", i%3), Lease: s.lease()}
		}
		for range 400 {
			if r.IntN(4) == 0 {
				s.Clock.Advance(time.Duration(r.Int64N(int64(s.lease())/4)).Truncate(time.Millisecond) + s.precision())
			}
			both, made := call{method: exchange, client: r.IntN(len(s.backends))}, []*window.Claim{}
			for _, of := range r.Perm(3)[:2] {
				c := &claims[of][r.IntN(3)]
				vary(c, r)
				made = append(made, c)
				both.claims = append(both.claims, *c)
			}
			for i, got := range s.do(both).places {
				c := made[i]
				for j, granted := range grants(got, c) {
					if granted {
						c.Held += c.Wants[j].N
					}
				}
				if got.Lost {
					c.Held = 0
				}
			}
			if r.IntN(10) == 0 && s.has(listPlaces) {
				s.do(call{method: listPlaces, keys: keys[:1+r.IntN(2)]})
			}
			if s.Failed() {
				return
			}
		}
	}
}

// listsPlaces compares what ListPlaces returns with the model.
func (s *suite) listsPlaces(m made) {
	s.Helper()
	// leases returns when the leases of processes end, by all else that is listed of them.
	leases := func(all []window.ListedPlaces) map[string]time.Duration {
		of := map[string]time.Duration{}
		for _, p := range all {
			for _, h := range append(p.ByProcess, window.Holder{}) { // of counts that nobody holds, too
				of[fmt.Sprintf("%q, %q: %d used, %d wait; %q: %d held, %d wait", p.Key, p.Name, p.Used, p.Waiting,
					h.Process, h.Held, h.Waiting)] = h.LeaseEnds
			}
		}
		return of
	}
	var listed []window.ListedPlaces
	s.ledger.EachPlaces(m.keys, func(p window.ListedPlaces) bool {
		listed = append(listed, p)
		return true
	})
	got, want := leases(m.held), leases(listed)
	same := maps.EqualFunc(got, want, func(got, want time.Duration) bool {
		return got >= want && got-want <= s.precision()
	})
	s.expect(same && len(m.held) == len(listed), "%v returns %v, want %v", m.call, got, want)
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
		w := window.Want{N: 1 + uint64(r.IntN(int(most))), Max: most, Wait: r.IntN(2) == 0}
		c.Wants = append(c.Wants, slices.Repeat([]window.Want{w}, 1+r.IntN(3))...)
	}
}
