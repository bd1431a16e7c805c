package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// example returns a call of a method with the key and limit. It has the fields of all methods. TakeAll has another
// take, too.
func (c count) example(m method) call {
	one := c.call(m, 1)
	one.id = 1
	one.takes = []window.Take{c.suite.count(c.key).in(time.Hour).take(1), c.take(1)}
	one.scales = []time.Duration{c.limit.Scale}
	one.claims = []window.Claim{{Key: c.key, Process: "p", Seq: 100, Lease: c.lease(), Wants: want(1, 5)}}
	one.keys = []string{c.key}
	return one
}

// present returns the methods that the backend does not leave out.
func (s *suite) present() []method {
	return slices.DeleteFunc(slices.Clone(methods), func(m method) bool { return !s.has(m) })
}

// testMethods compares the methods of a backend with those that its Subject leaves out.
func testMethods(s *suite) {
	for client, backend := range s.backends {
		c := s.count("k").by(client)
		for _, m := range methods {
			err := c.example(m).of(s.Context(), backend).err
			why, without := s.Without[string(m)]
			unsupported := errors.Is(err, window.ErrUnsupported)
			switch {
			case unsupported && !without:
				s.Errorf("%s of %T returns error %v, and Subject.Without does not name it: is it missing, or misspelt?",
					m, backend, err)
			case !unsupported && without:
				s.Errorf("%T has a method %s, although Subject.Without names it", backend, m)
			case without && why == "":
				s.Errorf("Subject.Without has no reason for %s", m)
			case err != nil && !without:
				s.Errorf("%v: error %v", c.example(m), err)
			}
		}
	}
	for name := range s.Without {
		s.expect(slices.Contains(methods, method(name)),
			"Subject.Without has %q, which is no method, or one that a backend must have", name)
	}
}

// mistakes are limits with an error: changes of one that is valid.
type mistakes struct {
	Of      string // limit, bucket or month
	Error   string
	Changes []json.RawMessage // fields of a window.Limit
}

// sentinels are the errors of mistakes.
var sentinels = map[string]error{"range": window.ErrRange, "scale": window.ErrScale, "unsupported": window.ErrUnsupported}

// testCheck compares the error of Check with those of all other methods, for limits that are mistakes, and for
// algorithms that the backend does not have.
func testCheck(s *suite) {
	traits, err := s.Backend.Check(s.count("k").limit)
	s.expect(err == nil && traits.Precision >= 0, "Check(%v) returns %+v, %v", s.count("k").limit, traits, err)
	valid := map[string]window.Limit{
		"limit": s.count("k").limit, "bucket": s.count("k").of(window.TokenBucket).limit,
		"month": s.count("k").ofCalendar(window.Month, "Europe/Berlin", 17).limit,
	}
	var all []mistakes
	s.readVectors("mistakes", &all)
	for _, m := range all {
		for _, change := range m.Changes {
			l := valid[m.Of]
			if err := json.Unmarshal(change, &l); err != nil {
				s.Fatal(err)
			}
			if m.Of != "month" || calendar(s) == "" {
				s.sameErrors(l, sentinels[m.Error])
			}
		}
	}
	most := s.bounded(window.Unlimited)
	for _, c := range []count{s.count("k").upTo(most + 1), s.count("k").ofCalendar(window.Year+1, "", 0)} {
		s.sameErrors(c.limit, window.ErrRange)
	}
	if s.Algorithm == window.TokenBucket {
		s.sameErrors(s.count("k").withBurst(most+1).limit, window.ErrRange)
	}
	for _, a := range slices.Concat(limits.Algorithms, []window.Algorithm{201, math.MaxUint8}) {
		l := s.count("k").of(a).limit
		if _, err := s.Backend.Check(l); a > 200 || errors.Is(err, window.ErrUnsupported) {
			s.sameErrors(l, window.ErrUnsupported)
		}
	}
	if s.has(peek) {
		s.count("k").do(peek, 0) // nothing was counted
	}
}

// allFields is a limit that is formatted with all its fields: the text of a Limit leaves out what may be the mistake.
type allFields window.Limit

// sameErrors fails the test unless Check and all other methods return the same error for a limit, which matches
// sentinel, or says that the backend does not have the algorithm.
func (s *suite) sameErrors(l window.Limit, sentinel error) {
	s.Helper()
	_, want := s.Backend.Check(l)
	if !errors.Is(want, sentinel) && !errors.Is(want, window.ErrUnsupported) {
		s.Errorf("Check(%+v) returns error %v, want %v", allFields(l), want, sentinel)
		return
	}
	c := s.count("k")
	c.limit = l
	for _, m := range s.present() {
		if m == exchange || m == list || m == listPlaces || m == deleteAll && sentinel != window.ErrScale {
			continue // it has no limit; Delete has a scale
		}
		got := c.example(m).of(s.Context(), s.Backend).err
		same := true
		for _, sentinel := range []error{window.ErrScale, window.ErrRange, window.ErrUnsupported} {
			same = same && errors.Is(got, sentinel) == errors.Is(want, sentinel)
		}
		var gotRange, wantRange *window.RangeError
		if errors.As(want, &wantRange) {
			same = same && errors.As(got, &gotRange) && *gotRange == *wantRange
		}
		s.expect(same, "%s with %+v returns error %v, and Check %v", m, allFields(l), got, want)
	}
}

func testContext(s *suite) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	s.count("k").do(charge, 2)
	for _, c := range []count{s.count("k"), s.count("none")} {
		for _, m := range s.present() {
			calls := []call{c.example(m)}
			if m == deleteAll {
				calls = append(calls, call{method: m, Take: c.take(0)}) // without scales
			}
			for _, call := range calls {
				err := call.of(ctx, s.Backend).err
				s.expect(errors.Is(err, context.Canceled), "%v, whose context was canceled, returns error %v", call, err)
				c.do(peek, 0)
				if m == exchange {
					s.claim(window.Claim{Key: c.key}) // nothing is held
				}
				if s.Failed() {
					s.Fatalf("after %v", call)
				}
			}
		}
	}
}

// testClosed is for backends that can be closed.
func testClosed(s *suite) {
	closer, ok := s.Backend.(io.Closer)
	switch {
	case s.Close != nil:
		s.Close()
	case ok:
		err := closer.Close()
		s.expect(err == nil, "Close: %v", err)
	default:
		return
	}
	for _, m := range s.present() {
		err := s.count("k").example(m).of(s.Context(), s.Backend).err
		s.expect(errors.Is(err, window.ErrClosed), "%s after Close returns error %v, want window.ErrClosed", m, err)
	}
}
