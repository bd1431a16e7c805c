package backendtest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

//go:embed testdata/fix-window-per-key.json
var vectorsJSON []byte

// vector is a sequence of calls on a virtual clock. Times are milliseconds since its start. The
// vectors were recorded from another implementation of fixed windows.
type vector struct {
	Name  string
	Steps []struct {
		T          int64
		Op         string // hit, inc, get, set or expires_at
		Key        string
		Scale      int64
		Limit, Inc uint64
		Arg        uint64 // increment of inc, or count of set
		Want       string // allow or deny
		Value      uint64 // count; time to wait for a denial; end for expires_at
	}
	// CountsAfterDenial marks vectors in which a get after a denial returns a count that
	// includes denied hits.
	CountsAfterDenial bool `json:"counts_after_denial"`
}

// vectors replays the vectors, with different offsets from a multiple of the scale.
func (s suite) vectors(t *testing.T) {
	var vectors []vector
	if err := json.Unmarshal(vectorsJSON, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		for _, offset := range []time.Duration{0, 37 * time.Millisecond} {
			s.test(t, subtest{fmt.Sprintf("%s/%v", v.Name, offset), func(c calls) {
				c.Clock.Advance(offset)
				v.replay(c)
			}, also(changes, perKey)})
		}
	}
}

func (v vector) replay(c calls) {
	start, full := c.Clock.Now(), false
	unit := c.stretch(time.Millisecond)
	for i, s := range v.Steps {
		at := func(n int64) time.Time { return start.Add(time.Duration(n) * unit) }
		c.Clock.Advance(at(s.T).Sub(c.Clock.Now()))
		scale := time.Duration(s.Scale) * unit
		var got uint64
		before := c.Clock.Now()
		switch s.Op {
		case "hit":
			w := c.hit(s.Key, scale, s.Limit, s.Inc)
			if allowed := w.Count <= s.Limit; allowed != (s.Want == "allow") {
				c.Fatalf("step %d: %+v: Count is %d", i, s, w.Count)
			} else if !allowed {
				full = true
				if c.RefusesHits {
					return // what follows rests on a denied hit that counts
				}
				if c.wrongEnd(at(s.T+int64(s.Value)), w.ExpiresAt) {
					c.Fatalf("step %d: %+v: Left is %v", i, s, w.Left)
				}
				continue
			}
			got = w.Count
		case "inc":
			got = c.charge(s.Key, scale, s.Arg).Count
		case "set":
			got = c.set(s.Key, scale, s.Arg).Count
		case "get":
			got = c.get(s.Key, scale).Count
			if full && v.CountsAfterDenial && c.SkipsDenied && got < s.Value {
				continue
			}
		case "expires_at":
			w := c.get(s.Key, scale)
			if s.Value == 0 {
				c.none(w)
			} else if c.wrongEnd(at(int64(s.Value)), w.ExpiresAt) {
				c.Fatalf("step %d: %+v: the window ends %v after the start", i, s, w.ExpiresAt.Sub(start))
			}
			continue
		default:
			c.Fatalf("step %d: unknown op in %+v", i, s)
		}
		if got != s.Value {
			c.Fatalf("step %d: %+v: Count is %d", i, s, got)
		}
		start = start.Add(c.Clock.Now().Sub(before)) // a Set can take some time
	}
}
