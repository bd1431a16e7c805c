package backendtest

import (
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/window"
)

//go:embed testdata
var vectorFiles embed.FS

// vector is a sequence of calls on a virtual clock. The results of rolling algorithms were worked out by hand, those of
// fixed windows were recorded from another implementation. Backends are compared with them, and with the model.
type vector struct {
	Name   string
	Why    string // the arithmetic, in words
	Source string // where results that were recorded come from
	// ExactTokens says that the vector needs a token bucket in which a token takes exactly Scale/Max. Those of backends
	// with a Precision may take a little longer.
	ExactTokens bool `json:"exact_tokens"`
	Steps       []step
}

// step is a call. Times are relative to the start of the vector, or to the call. They are rounded up to a nanosecond.
type step struct {
	T       duration
	Op      string // hit, take, peek, charge, set, get, reset or give_back
	Key     string
	Scale   duration
	Limit   uint64
	Burst   uint64
	N       uint64
	Granted bool      // of a hit, take or peek; what give_back returns
	Count   *uint64   // missing if the algorithm leaves it open
	Retry   duration  // the RetryAfter of a hit, take or peek that is refused; not of fixed windows
	Left    *duration // of the window; 0 if there is none; missing if the algorithm leaves it open
	As      string    // the name of a take, for give_back
	Of      string    // the name of the take that give_back gives back to
}

// ops are the methods of ops.
var ops = map[string]method{
	"hit": hit, "take": take, "peek": peek, "charge": charge, "set": set, "get": peek, "reset": reset,
	"give_back": giveBack,
}

// duration is a time.Duration that is written like 1.5s, or "never".
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		*d = duration(window.Never)
		return nil
	}
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// readVectors reads a file.
func (s *suite) readVectors(name string, vectors any) {
	s.Helper()
	text, err := vectorFiles.ReadFile("testdata/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, vectors)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// testVectors replays the vectors of the backend's algorithm, each with a key of its own. Those of fixed windows are
// replayed with another offset from a multiple of the scale, too.
func testVectors(s *suite) {
	var vectors []vector
	if s.Algorithm == window.AlignedWindow {
		return
	}
	s.readVectors(s.Algorithm.String(), &vectors)
	for _, v := range vectors {
		unit, why := s.unitOf(&v)
		if why != "" {
			s.Logf("vector %q is not replayed: %s", v.Name, why)
			continue
		}
		for _, offset := range []time.Duration{0, 37 * time.Millisecond} {
			if offset == 0 || !s.Algorithm.Rolling() {
				s.replay(&v, unit, offset)
			}
		}
	}
}

// unitOf returns how long a nanosecond of the vector takes: more for backends that have no short scales, or if the
// vector is finer than the resolution of the backend's clock. If the backend can't replay the vector, it returns why.
func (s *suite) unitOf(v *vector) (unit time.Duration, why string) {
	precision := s.traits(s.count("").limit).Precision
	if v.ExactTokens && precision > 0 {
		return 0, "it needs exact tokens"
	}
	unit = s.unit / time.Millisecond
	for _, step := range v.Steps {
		if most := max(step.Limit, step.Burst, step.N); s.bounded(most) < most {
			return 0, fmt.Sprintf("it has the number %d", most)
		}
		if s.Algorithm.Rolling() && precision > 0 && time.Duration(step.T)*unit%precision != 0 {
			unit *= precision
		}
	}
	return unit, ""
}

// replay makes the calls of a vector.
func (s *suite) replay(v *vector, unit, offset time.Duration) {
	ids := map[string]int64{} // of takes, by their names
	scale := time.Duration(v.Steps[0].Scale) * unit
	aligned := s.count("").in(scale).of(window.AlignedWindow)
	s.Clock.Advance(time.Duration(ends(&aligned.limit, s.now())-s.now()) + offset)
	start := s.Clock.Now()
	exact := true
	for i, step := range v.Steps {
		s.Clock.Advance(start.Add(time.Duration(step.T) * unit).Sub(s.Clock.Now()))
		before := s.Clock.Now()
		c := s.count(fmt.Sprint(v.Name, offset,
			step.Key)).in(time.Duration(step.Scale) * unit).upTo(step.Limit).withBurst(step.Burst)
		call := c.call(ops[step.Op], step.N)
		call.id = ids[step.Of]
		a := s.do(call)
		ids[step.As] = a.ID
		passed := s.Clock.Now().Sub(before) // a Set can take some time
		exact = exact && !(s.SkipsDenied && step.Op == "hit" && !step.Granted) && !(s.MayLose && step.Op == "give_back")
		if exact {
			s.agrees(&step, call, a, unit, passed)
		}
		if s.Failed() {
			s.Fatalf("vector %q, step %d: %s", v.Name, i+1, v.Why)
		}
		start = start.Add(passed)
	}
}

// agrees compares the answer to a call with a step of a vector, whose times are rounded up to a unit.
func (s *suite) agrees(want *step, c call, got answer, unit, passed time.Duration) {
	s.Helper()
	precision := s.traits(c.Limit).Precision
	late := func(field string, got time.Duration, want duration) {
		least := time.Duration(want)
		if want != duration(window.Never) {
			least *= unit
		}
		by := got - least
		s.expect(passed > 0 || by > -unit && by <= precision, "%v: %s is %v, want %v", c, field, got, least)
	}
	switch granted := !got.Refused && (c.method != hit || s.Algorithm.Rolling() || got.Count <= want.Limit); {
	case c.method == giveBack:
		s.expect(got.ok == want.Granted, "%v returns %v", c, got.ok)
	case c.method == hit || c.method == take || want.Op == "peek":
		s.expect(granted == want.Granted, "%v: granted is %v, want %v", c, granted, want.Granted)
		if s.Algorithm.Rolling() {
			late("RetryAfter", got.RetryAfter, want.Retry)
		}
	}
	if want.Count != nil {
		s.expect(got.Count == *want.Count, "%v: Count is %d, want %d", c, got.Count, *want.Count)
	}
	if want.Left != nil {
		late("Left", got.Left, *want.Left)
	}
}
