package backendtest

import (
	"embed"
	"encoding/json"
	"time"

	"github.com/throttr-go/throttr/window"
)

//go:embed testdata/token-bucket.json testdata/sliding.json testdata/sliding-log.json
var rollingJSON embed.FS

// rollingVector is a sequence of calls on a virtual clock, whose results were worked out by hand.
// It starts at a multiple of the scale.
type rollingVector struct {
	Name  string
	Steps []rollingStep
}

// rollingStep is a call. Times are relative to the start of the vector, or to the call.
type rollingStep struct {
	T       duration
	Op      string // hit, take, inc, set, get, reset or give_back
	Scale   duration
	Limit   uint64
	N       uint64 // the increment or count
	Granted bool   // of a hit or take; what give_back returns
	Count   uint64
	Retry   duration  // the RetryAfter of a hit or take that is refused
	Left    *duration // of the window; 0 if there is none; missing if the algorithm leaves it open
	As      string    // the name of a take, for give_back
	Of      string    // the name of the take that give_back gives back to
}

// duration is a time.Duration that is written like 1.5s.
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// vectorFile returns the file with the vectors of a rolling algorithm.
func vectorFile(a window.Algorithm) string {
	switch a {
	case window.TokenBucket:
		return "testdata/token-bucket.json"
	case window.Sliding:
		return "testdata/sliding.json"
	default:
		return "testdata/sliding-log.json"
	}
}

// testRollingVectors replays the vectors of the backend's algorithm, each with a key of its own.
func testRollingVectors(c rolling) {
	text, err := rollingJSON.ReadFile(vectorFile(c.Algorithm))
	if err != nil {
		c.Fatal(err)
	}
	var vectors []rollingVector
	if err := json.Unmarshal(text, &vectors); err != nil {
		c.Fatal(err)
	}
	for _, v := range vectors {
		v.replay(c)
	}
}

func (v rollingVector) replay(c rolling) {
	scale := c.stretch(time.Duration(v.Steps[0].Scale))
	now := c.Clock.Now()
	c.Clock.Advance(window.Aligned.Start(now, scale).Add(scale).Sub(now))
	start, ids := c.Clock.Now(), map[string]int64{}
	for i, s := range v.Steps {
		c.Clock.Advance(start.Add(c.stretch(time.Duration(s.T))).Sub(c.Clock.Now()))
		if !v.step(c, s, ids) {
			return
		}
		if c.Failed() {
			c.Fatalf("vector %q, step %d: %+v", v.Name, i+1, s)
		}
	}
}

// step makes the call of a step. It returns false if the rest of the vector can't be replayed.
func (v rollingVector) step(c rolling, s rollingStep, ids map[string]int64) bool {
	var w window.Window
	scale := c.stretch(time.Duration(s.Scale))
	switch s.Op {
	case "hit", "take":
		if c.taker == nil || s.Op == "hit" {
			w = c.hit(v.Name, scale, s.Limit, s.N)
		} else {
			w, _ = c.take(v.Name, scale, s.Limit, s.N)
		}
		if s.As != "" {
			ids[s.As] = w.ID
		}
		c.decided(w, s.Granted, c.stretch(time.Duration(s.Retry)))
	case "inc":
		w = c.inc(v.Name, scale, s.N)
	case "set":
		w = c.set(v.Name, scale, s.N)
	case "get":
		w = c.get(v.Name, scale)
	case "reset":
		c.reset(v.Name, scale)
		return true
	case "give_back":
		return c.taker != nil && c.giveBack(v.Name, scale, ids[s.Of], s.N, s.Granted) == s.Granted
	default:
		c.Fatalf("unknown op in %+v", s)
	}
	if w.Count != s.Count {
		c.Errorf("Count is %d, want %d", w.Count, s.Count)
	}
	if s.Left != nil {
		c.left(w, c.stretch(time.Duration(*s.Left)))
	}
	return true
}

// decided fails the test unless w is that of a hit that is granted, or refused until retry from
// now.
func (c rolling) decided(w window.Window, granted bool, retry time.Duration) {
	c.Helper()
	if w.Refused == granted {
		c.Errorf("Refused is %v, want %v: %+v", w.Refused, !granted, w)
	}
	if granted {
		retry = 0
	}
	if w.RetryAfter < retry || w.RetryAfter > retry+c.slack(retry) {
		c.Errorf("RetryAfter is %v, want %v", w.RetryAfter, retry)
	}
}

// left fails the test unless w is active for d, or not at all if d is 0.
func (c rolling) left(w window.Window, d time.Duration) {
	c.Helper()
	if w.Left < d || w.Left > d+c.slack(d) {
		c.Errorf("Left is %v, want %v", w.Left, d)
	}
	switch {
	case d == 0 && !w.ExpiresAt.IsZero():
		c.Errorf("ExpiresAt is %v, want zero", w.ExpiresAt)
	case d > 0 && w.ExpiresAt.Sub(c.Clock.Now()) != w.Left:
		c.Errorf("ExpiresAt is %v, but Left is %v at %v", w.ExpiresAt, w.Left, c.Clock.Now())
	}
}

// slack returns by how much a duration may be larger than want.
func (c rolling) slack(want time.Duration) time.Duration {
	if want == 0 {
		return 0
	}
	return c.Exact
}
