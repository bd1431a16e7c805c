package backendtest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

//go:embed testdata/fix-window-per-key.json
var vectorsJSON []byte

// vector is a sequence of calls on a virtual clock. Times are milliseconds since its start.
// They come from a known implementation of the per-key fixed window.
type vector struct {
	Name  string
	Steps []struct {
		T          int64
		Op         string // hit, inc, get, set or expires_at
		Key        string
		Scale      int64
		Limit, Inc uint64
		Arg        uint64 // what inc adds or set sets
		Want       string // allow or deny
		Value      uint64 // the count; for a denial the time to wait; the end for expires_at
	}
	// CountsAfterDenial marks those where a later get also counts hits that were denied when
	// the window was full already.
	CountsAfterDenial bool `json:"counts_after_denial"`
}

// testVectors replays the vectors, from different positions in the scale.
func testVectors(t *testing.T, start func(*testing.T) Subject) {
	var vectors []vector
	if err := json.Unmarshal(vectorsJSON, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		for _, offset := range []time.Duration{0, 37 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/%v", v.Name, offset), func(t *testing.T) {
				c := calls{t, start(t)}
				if c.Algorithm != window.PerKey {
					return // they are of the other algorithm
				}
				c.Clock.Advance(offset)
				v.replay(c)
			})
		}
	}
}

func (v vector) replay(c calls) {
	start, full := c.Clock.Now(), false
	for i, s := range v.Steps {
		at := func(ms int64) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
		c.Clock.Advance(at(s.T).Sub(c.Clock.Now()))
		scale := time.Duration(s.Scale) * time.Millisecond
		var got uint64
		switch s.Op {
		case "hit":
			w := c.hit(s.Key, scale, s.Limit, s.Inc)
			if allowed := w.Count <= s.Limit; allowed != (s.Want == "allow") {
				c.Fatalf("step %d: %+v: the count is %d", i, s, w.Count)
			} else if !allowed {
				full = true
				if c.late(at(s.T+int64(s.Value)), w.ExpiresAt) {
					c.Fatalf("step %d: %+v: there are %v left", i, s, w.Left)
				}
				continue
			}
			got = w.Count
		case "inc":
			got = c.inc(s.Key, scale, s.Arg).Count
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
			} else if c.late(at(int64(s.Value)), w.ExpiresAt) {
				c.Fatalf("step %d: %+v: it ends at %v", i, s, w.ExpiresAt.Sub(start))
			}
			continue
		default:
			c.Fatalf("step %d: unknown op in %+v", i, s)
		}
		if got != s.Value {
			c.Fatalf("step %d: %+v: the count is %d", i, s, got)
		}
	}
}
