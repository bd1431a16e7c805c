package backendtest

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // of machines that have no zone data

	"github.com/throttr-go/throttr/window"
)

// Most properties of windows are seen by random calls and by vectors. These tests have what those do not: many keys,
// and numbers without bounds.

// testIndependence counts in windows that differ in one thing: key, name, scale, algorithm or calendar.
func testIndependence(s *suite) {
	long := strings.Repeat("k", 5000)
	keys := []string{
		"", "a", "A", " a", "a ", "a:1", "1:a", "a1", "1a", long, "0a",
		// with scales of 1, 10 and 11 s, concatenations would be equal
		"a\x00", "é", "e\u0301", "\xff", "\xfe", "{a}", "*", strings.Repeat("k", 255), strings.Repeat("k", 256),
		long + "1", "1" + long,
	}
	var all []count
	for _, seconds := range []time.Duration{1, 2, 10, 11, 60} {
		c := s.count("").upTo(100).in(1000 * seconds * s.unit)
		if _, err := s.Backend.Check(c.limit); err != nil && seconds == 11 {
			continue // some stores have no such scale
		}
		all = append(all, c.each(keys)...)
		if seconds != 1 && seconds != 10 {
			continue
		}
		for _, kind := range c.kinds("", "1", "a", "1:", ":1", "10", strings.Repeat("~", 64)) {
			if kind.limit != c.limit && (kind.limit.Calendar == 0 || seconds == 1) {
				all = append(all, kind.each(keys[:10])...)
			}
		}
	}
	for i, c := range all {
		c.do(peek, 0)
		if c.do(charge, uint64(1+i%97)); s.Failed() {
			return
		}
	}
	for i, c := range all {
		if c.upTo(100*uint64(i%2)).do(charge, 1); s.Failed() {
			return
		}
	}
	if s.has(list) {
		s.do(call{method: list, keys: []string{"a", "", "\xff", "nobody"}})
		listed := map[uint64]bool{} // Max and Burst: 0 if no Max is stored, otherwise the last one that is not 0
		for _, l := range s.do(call{method: list}).counts {
			listed[l.Limit.Max+l.Limit.Burst] = true
		}
		s.expect(len(listed) == 1 && (listed[0] || listed[100]), "a Max of 100, and then of 0, is listed as %v", listed)
	}
}

// testLoops takes of the keys that a loop lists, and ends it.
func testLoops(s *suite) {
	for i := range 5 {
		s.count(fmt.Sprint(i)).do(take, 1)
	}
	taken := make(chan answer)
	for most := range 5 {
		n := 0
		s.try(call{method: list, each: func(l window.Listed) bool {
			n++
			go func() { taken <- s.count(l.Key).do(take, 1) }()
			select {
			case <-taken:
				return n <= most
			case <-time.After(5 * time.Second):
				s.Errorf("a take in the loop of a list does not return before the loop has ended")
				return false
			}
		}})
		if s.Failed() {
			<-taken
			return
		}
	}
	s.do(call{method: list})
}

// each returns counts of keys.
func (c count) each(keys []string) (all []count) {
	for _, key := range keys {
		all = append(all, c.on(key))
	}
	return all
}

// testLargest makes calls with the largest numbers.
func testLargest(s *suite) {
	largest := s.bounded(window.Unlimited)
	if s.Algorithm.Rolling() {
		s.largestOfRolling(min(largest, window.Unlimited-1))
	} else {
		c := s.count("k")
		c.do(set, largest-1)
		for _, n := range []uint64{1, 1, largest - 1, largest} {
			c.do(charge, n)
		}
	}
	if largest == window.Unlimited {
		if s.has(takeAll) {
			s.sumsThatWrap()
		}
		return
	}
	over := s.count("over").call(charge, largest+1)
	a := over.of(s.Context(), s.Backend)
	s.expect(a.err == nil && (a.Count == largest || s.Algorithm.Rolling()) || errors.Is(a.err, window.ErrRange),
		"%v returns %+v, %v", over, a.Window, a.err)
	if !s.Algorithm.Rolling() {
		err := s.count("set").call(set, largest+1).of(s.Context(), s.Backend).err
		s.expect(errors.Is(err, window.ErrRange), "Set of MaxCount+1 returns error %v, want window.ErrRange", err)
		s.count("set").do(peek, 0)
	}
}

// largestOfRolling hits with the largest limits, of which the count need not be exact.
func (s *suite) largestOfRolling(largest uint64) {
	c, half := s.count("k").upTo(largest), largest/2
	s.count("small").do(hit, largest)
	for i, n := range []uint64{half, half, half, largest} {
		a := c.try(hit, n)
		s.expect(a.Refused == (i > 1) && a.Count >= half, "hit %d of %d of %d returns %+v", i+1, n, largest, a.Window)
	}
	for range 3 {
		c.try(charge, largest)
		a := c.try(take, half)
		s.expect(a.Refused && a.Count >= half && a.Left > 0, "after the largest Charge, a take returns %+v", a.Window)
	}
	c.try(set, largest)
	s.expect(c.upTo(5).try(hit, 1).Refused, "a hit after Set of the largest number is granted")
}

// sumsThatWrap takes the largest numbers of one count.
func (s *suite) sumsThatWrap() {
	const most = window.Unlimited
	s.do(call{method: takeAll}) // of none
	third := s.count("fits").upTo(most).take(most / 3)
	s.expect(s.try(call{method: takeAll, takes: []window.Take{third, third, third}}).ok,
		"three thirds of the largest number are refused")
	large, other := s.count("sum").upTo(most-1), s.count("other")
	for held := range uint64(2) {
		for _, sum := range [][]uint64{{most, most}, {1 << 62, 1 << 62}, {1, most}, {1 << 62, 1 << 62, 1},
			{most, 1, most}} { // they wrap
			takes := []window.Take{other.take(1)}
			for _, n := range sum {
				takes = append(takes, large.take(n))
			}
			s.do(call{method: takeAll, takes: takes})
			other.do(peek, 0)
		}
		if held > 0 || s.Algorithm == window.TokenBucket {
			break // a bucket of that size does not count single tokens
		}
		large.do(take, 1)
		other.do(take, 1)
	}
}
