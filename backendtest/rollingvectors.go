package backendtest

import (
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/window"
)

//go:embed testdata/token-bucket.json testdata/sliding-window.json testdata/sliding-log.json
var rollingJSON embed.FS

// rollingVector is a sequence of calls on a virtual clock, whose results were worked out by hand.
// It starts at a multiple of the scale of its first step.
type rollingVector struct {
	Name string
	Why  string // the arithmetic, in words
	// ExactTokens says that the vector needs a token bucket in which a token takes exactly
	// Scale/Max: see Subject.RoundsTokens.
	ExactTokens bool `json:"exact_tokens"`
	Steps       []rollingStep
}

// rollingStep is a call. Times are relative to the start of the vector, or to the call. They are
// rounded up to a nanosecond.
type rollingStep struct {
	T       duration
	Op      string // hit, take, peek, charge, set, get, reset or give_back
	Key     string
	Scale   duration
	Limit   uint64
	Burst   uint64
	N       uint64
	Granted bool // of a hit, take or peek; what give_back returns
	Count   uint64
	Retry   duration  // the RetryAfter of a hit, take or peek that is refused
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

// testRollingVectors replays the vectors of the backend's algorithm, each with a key of its own.
func testRollingVectors(c calls) {
	text, err := rollingJSON.ReadFile("testdata/" + c.Algorithm.String() + ".json")
	if err != nil {
		c.Fatal(err)
	}
	var vectors []rollingVector
	if err := json.Unmarshal(text, &vectors); err != nil {
		c.Fatal(err)
	}
	for _, v := range vectors {
		unit, why := v.unit(c)
		if why != "" {
			c.Logf("vector %q is not replayed: %s", v.Name, why)
			continue
		}
		(&replay{c, v, unit, map[string]int64{}}).run()
	}
}

// unit returns how long a nanosecond of the vector takes: more for backends with a long MinScale, or if
// the vector is finer than the resolution of the backend's clock. If the backend can't replay the vector,
// unit returns why.
func (v rollingVector) unit(c calls) (unit time.Duration, why string) {
	if v.ExactTokens && c.RoundsTokens {
		return 0, "it needs exact tokens"
	}
	unit = c.stretch(1)
	for _, s := range v.Steps {
		if most := max(s.Limit, s.Burst, s.N); c.bounded(most) < most {
			return 0, fmt.Sprintf("it has the number %d", most)
		}
		if c.Exact > 0 && time.Duration(s.T)*unit%c.Exact != 0 {
			unit *= c.Exact
		}
	}
	return unit, ""
}

// replay makes the calls of a vector.
type replay struct {
	calls
	vector rollingVector
	unit   time.Duration    // a nanosecond of the vector
	ids    map[string]int64 // of takes, by their names
}

func (r *replay) run() {
	scale := time.Duration(r.vector.Steps[0].Scale) * r.unit
	r.Clock.Advance(r.nextAligned(scale))
	start := r.Clock.Now()
	for i, s := range r.vector.Steps {
		r.Clock.Advance(start.Add(time.Duration(s.T) * r.unit).Sub(r.Clock.Now()))
		if !r.step(s) {
			return
		}
		if r.Failed() {
			r.Fatalf("vector %q, step %d: %+v\n%s", r.vector.Name, i+1, s, r.vector.Why)
		}
	}
}

// step makes the call of a step. It returns false if the rest of the vector can't be replayed.
func (r *replay) step(s rollingStep) bool {
	var w window.Window
	key, scale := r.vector.Name+s.Key, time.Duration(s.Scale)*r.unit
	c := r.upTo(s.Limit)
	c.burst = s.Burst
	switch s.Op {
	case "hit":
		w = c.hit(key, scale, s.Limit, s.N)
	case "take":
		w = c.take(key, scale, s.Limit, s.N)
		r.ids[s.As] = w.ID
	case "peek":
		w = c.peek(key, scale, s.Limit, s.N)
	case "charge":
		w = c.charge(key, scale, s.N)
	case "set":
		w = c.set(key, scale, s.N)
	case "get":
		w = c.get(key, scale)
	case "reset":
		c.reset(key, scale)
		return true
	case "give_back":
		return c.giveBack(key, scale, r.ids[s.Of], s.N, s.Granted) == s.Granted
	default:
		c.Fatalf("unknown op in %+v", s)
	}
	if s.Op == "hit" || s.Op == "take" || s.Op == "peek" {
		c.decided(w, s.Granted, time.Duration(s.Retry), r.unit)
	}
	if w.Count != s.Count {
		r.Errorf("Count is %d, want %d", w.Count, s.Count)
	}
	if s.Left != nil {
		r.left(w, time.Duration(*s.Left)*r.unit, r.unit)
	}
	return true
}

// decided fails the test unless w is that of a hit that is granted, or refused until retry from
// now in units, which was rounded up to one.
func (c calls) decided(w window.Window, granted bool, retry, unit time.Duration) {
	c.Helper()
	if w.Refused == granted {
		c.Errorf("Refused is %v, want %v: %+v", w.Refused, !granted, w)
	}
	if right := w.RetryAfter == retry; !right && (retry == window.Never || !c.lasts(w.RetryAfter, retry*unit, unit)) {
		c.Errorf("RetryAfter is %v, want %v", w.RetryAfter, retry)
	}
}

// left fails the test unless w is active for d, which was rounded up to a unit, or not at all if d
// is 0.
func (c calls) left(w window.Window, d, unit time.Duration) {
	c.Helper()
	if !c.lasts(w.Left, d, unit) {
		c.Errorf("Left is %v, want %v", w.Left, d)
	}
	switch {
	case d == 0 && !w.ExpiresAt.IsZero():
		c.Errorf("ExpiresAt is %v, want zero", w.ExpiresAt)
	case d > 0 && w.ExpiresAt.Sub(c.Clock.Now()) != w.Left:
		c.Errorf("ExpiresAt is %v, but Left is %v at %v", w.ExpiresAt, w.Left, c.Clock.Now())
	}
}

// lasts reports whether got is a duration that is want if it is rounded up to a unit, or up to Exact
// longer.
func (c calls) lasts(got, want, unit time.Duration) bool {
	if want == 0 {
		return got == 0
	}
	return got > want-unit && got <= want+c.Exact
}
