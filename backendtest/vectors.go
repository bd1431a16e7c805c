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

// vector is a sequence of calls on a virtual clock. The results of rolling algorithms were worked out by
// hand, those of fixed windows were recorded from another implementation.
type vector struct {
	Name   string
	Why    string // the arithmetic, in words
	Source string // where results that were recorded come from
	// ExactTokens says that the vector needs a token bucket in which a token takes exactly
	// Scale/Max: see Subject.RoundsTokens.
	ExactTokens bool `json:"exact_tokens"`
	// CountsAfterDenial says that a get after a denial returns a count that includes denied hits: see
	// Subject.SkipsDenied.
	CountsAfterDenial bool `json:"counts_after_denial"`
	Steps             []step
}

// step is a call. Times are relative to the start of the vector, or to the call. They are rounded up to
// a nanosecond.
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

// testVectors replays the vectors of the backend's algorithm, each with a key of its own. Those of fixed
// windows are replayed with another offset from a multiple of the scale, too.
func testVectors(c calls) {
	text, err := vectorFiles.ReadFile("testdata/" + c.Algorithm.String() + ".json")
	if err != nil {
		c.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		c.Fatal(err)
	}
	for _, v := range vectors {
		unit, why := v.unit(c)
		if why != "" {
			c.Logf("vector %q is not replayed: %s", v.Name, why)
			continue
		}
		offsets := []time.Duration{0}
		if !c.Algorithm.Rolling() {
			offsets = append(offsets, 37*time.Millisecond)
		}
		for _, offset := range offsets {
			(&replay{calls: c, vector: v, unit: unit, ids: map[string]int64{}}).run(offset)
		}
	}
}

// unit returns how long a nanosecond of the vector takes: more for backends with a long MinScale, or if
// the vector is finer than the resolution of the backend's clock. If the backend can't replay the vector,
// unit returns why.
func (v vector) unit(c calls) (unit time.Duration, why string) {
	if v.ExactTokens && c.RoundsTokens {
		return 0, "it needs exact tokens"
	}
	unit = c.stretch(1)
	for _, s := range v.Steps {
		if most := max(s.Limit, s.Burst, s.N); c.bounded(most) < most {
			return 0, fmt.Sprintf("it has the number %d", most)
		}
		if c.Algorithm.Rolling() && c.Precision > 0 && time.Duration(s.T)*unit%c.Precision != 0 {
			unit *= c.Precision
		}
	}
	return unit, ""
}

// replay makes the calls of a vector.
type replay struct {
	calls
	vector
	unit   time.Duration    // a nanosecond of the vector
	prefix string           // of keys
	ids    map[string]int64 // of takes, by their names
	denied bool             // a hit was denied
}

func (r *replay) run(offset time.Duration) {
	r.prefix = fmt.Sprint(r.vector.Name, offset)
	r.Clock.Advance(r.in(time.Duration(r.Steps[0].Scale)*r.unit).nextAligned() + offset)
	start := r.Clock.Now()
	for i, s := range r.Steps {
		r.Clock.Advance(start.Add(time.Duration(s.T) * r.unit).Sub(r.Clock.Now()))
		before := r.Clock.Now()
		if !r.step(s) {
			return
		}
		if r.Failed() {
			r.Fatalf("vector %q, step %d: %+v\n%s", r.vector.Name, i+1, s, r.Why)
		}
		start = start.Add(r.Clock.Now().Sub(before)) // a Set can take some time
	}
}

// step makes the call of a step. It returns false if the rest of the vector can't be replayed.
func (r *replay) step(s step) bool {
	var w window.Window
	c := r.on(r.prefix + s.Key).in(time.Duration(s.Scale) * r.unit).upTo(s.Limit).withBurst(s.Burst)
	switch s.Op {
	case "hit":
		w = c.hit(s.N)
		if !c.Algorithm.Rolling() {
			w.Refused = w.Count > s.Limit
		}
	case "take":
		w = c.take(s.N)
		r.ids[s.As] = w.ID
	case "peek":
		w = c.peek(s.N)
	case "charge":
		w = c.charge(s.N)
	case "set":
		w = c.set(s.N)
	case "get":
		w = c.get()
	case "reset":
		c.reset()
		return true
	case "give_back":
		return c.giveBack(s.N, r.ids[s.Of], s.Granted) == s.Granted
	default:
		c.Fatalf("unknown op in %+v", s)
	}
	if s.Op == "hit" || s.Op == "take" || s.Op == "peek" {
		c.decided(w, s.Granted, time.Duration(s.Retry), r.unit)
		r.denied = r.denied || w.Refused
	}
	if r.denied && c.RefusesHits {
		return false // what follows rests on a denied hit that counts
	}
	uncounted := r.denied && c.SkipsDenied && r.CountsAfterDenial
	if s.Count != nil && w.Count != *s.Count && (!uncounted || w.Count > *s.Count) {
		r.Errorf("Count is %d, want %d", w.Count, *s.Count)
	}
	if s.Left != nil {
		c.left(w, time.Duration(*s.Left)*r.unit, r.unit)
	}
	return true
}

// decided fails the test unless w is that of a hit that is granted, or refused until retry from
// now in units, which was rounded up to one.
func (c calls) decided(w window.Window, granted bool, retry, unit time.Duration) {
	c.Helper()
	c.expect(w.Refused != granted, "Refused is %v, want %v: %+v", w.Refused, !granted, w)
	if right := w.RetryAfter == retry; !right && (retry == window.Never || !c.lasts(w.RetryAfter, retry*unit, unit)) {
		c.Errorf("RetryAfter is %v, want %v", w.RetryAfter, retry)
	}
}

// left fails the test unless w is active for d, which was rounded up to a unit, or not at all if d
// is 0.
func (c calls) left(w window.Window, d, unit time.Duration) {
	c.Helper()
	c.expect(c.lasts(w.Left, d, unit), "Left is %v, want %v", w.Left, d)
	switch {
	case d == 0 && !w.ExpiresAt.IsZero():
		c.Errorf("ExpiresAt is %v, want zero", w.ExpiresAt)
	case d > 0 && w.ExpiresAt.Sub(c.Clock.Now()) != w.Left:
		c.Errorf("ExpiresAt is %v, but Left is %v at %v", w.ExpiresAt, w.Left, c.Clock.Now())
	}
}

// lasts reports whether got is a duration that is want if it is rounded up to a unit, or up to Precision
// longer.
func (c calls) lasts(got, want, unit time.Duration) bool {
	if want == 0 {
		return got == 0
	}
	return got > want-unit && got <= want+c.Precision
}
