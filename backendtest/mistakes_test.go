package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// changed makes calls with another key, limit, number or ID. Of TakeAll, this is done to each take.
func changed(f func(b *wrong, c *call)) mistake {
	return func(b *wrong, c call) answer {
		switch c.method {
		case "Exchange", "Delete":
			return b.right(c)
		case "TakeAll":
			c.takes = slices.Clone(c.takes)
			for i := range c.takes {
				one := call{method: "Take", ctx: c.ctx, Take: c.takes[i]}
				f(b, &one)
				c.takes[i] = one.Take
			}
			return b.right(c)
		}
		f(b, &c)
		return b.right(c)
	}
}

// keys changes the keys of calls.
func keys(f func(key string) string) mistake {
	return changed(func(_ *wrong, c *call) { c.Key = f(c.Key) })
}

// limit changes the limits of calls.
func limit(f func(l *window.Limit)) mistake { return changed(func(_ *wrong, c *call) { f(&c.Limit) }) }

// holding changes how much a limit holds.
func holding(f func(holds uint64) uint64) mistake {
	return limit(func(l *window.Limit) {
		if l.Algorithm == window.TokenBucket {
			l.Burst = f(limits.Capacity(l))
		} else {
			l.Max = f(l.Max)
		}
	})
}

// returned changes what methods return of windows.
func returned(f func(b *wrong, c call, w *window.Window)) mistake {
	return func(b *wrong, c call) answer {
		a := b.right(c)
		for i := range c.windows {
			f(b, call{method: "Take", ctx: c.ctx, Take: c.takes[i]}, &c.windows[i])
		}
		if a.err == nil && c.Limit.Algorithm != 0 && c.method != "Check" {
			f(b, c, &a.Window)
		}
		return a
	}
}

// refused does something after a take has been refused.
func refused(f func(b *wrong, c call, w *window.Window)) mistake {
	return returned(func(b *wrong, c call, w *window.Window) {
		if w.Refused && c.method != "Peek" {
			f(b, c, w)
		}
	})
}

// retrying changes how long a caller who is refused waits.
func retrying(f func(w window.Window) time.Duration) mistake {
	return returned(func(_ *wrong, _ call, w *window.Window) {
		if w.Refused {
			w.RetryAfter = f(*w)
		}
	})
}

// instead makes calls of some methods otherwise.
func instead(methods string, f func(b *wrong, c call) answer) mistake {
	return func(b *wrong, c call) answer {
		if slices.Contains(strings.Fields(methods), c.method) {
			return f(b, c)
		}
		return b.right(c)
	}
}

// takes makes takes, one or several, otherwise. It has to fill the windows.
func takes(f func(b *wrong, all []call, windows []window.Window) (granted bool)) mistake {
	return instead("Take TakeAll Hit", func(b *wrong, c call) (a answer) {
		if c.method == "Hit" && !c.Limit.Algorithm.Rolling() {
			return b.right(c)
		}
		several := c.method == "TakeAll"
		if !several {
			c.takes, c.windows = []window.Take{c.Take}, make([]window.Window, 1)
		}
		all := make([]call, len(c.takes))
		for i, t := range c.takes {
			all[i] = call{method: "Take", ctx: c.ctx, Take: t}
			if a.err = b.right(call{method: "Check", Take: t}).err; a.err != nil {
				return a
			}
		}
		a.ok = f(b, all, c.windows)
		if !several {
			a.Window = c.windows[0]
		}
		return a
	})
}

// fit reports whether takes would be granted, each for itself, and stores the windows.
func (b *wrong) fit(all []call, windows []window.Window) bool {
	granted := true
	for i, c := range all {
		windows[i] = b.to(c, "Peek", c.N).Window
		granted = granted && !windows[i].Refused
	}
	return granted
}

// charge counts takes.
func (b *wrong) charge(all []call, windows []window.Window) bool {
	for i, c := range all {
		windows[i] = b.to(c, "Charge", c.N).Window
	}
	return true
}

// failing changes errors.
func failing(f func(c call, err error) error) mistake {
	return func(b *wrong, c call) answer {
		a := b.right(c)
		a.err = f(c, a.err)
		return a
	}
}

// hiding returns errors that do not match one any more.
func hiding(hidden error) mistake {
	return failing(func(_ call, err error) error {
		if errors.Is(err, hidden) {
			return errors.New(err.Error())
		}
		return err
	})
}

// without ends the context of no call.
func without(c call) call { c.ctx = context.WithoutCancel(c.ctx); return c }

// ending ends the windows of a key that are of some limits, in place of Reset or Delete.
func ending(method string, which func(l, of window.Limit) bool) mistake {
	return instead(method, func(b *wrong, c call) (a answer) {
		if a.err = b.right(c).err; a.err != nil { // as it fails, or as it ends what it should
			return a
		}
		for l := range b.Backend.List(c.ctx, c.Key) {
			if which(l.Limit, c.Limit) {
				a.n++
				b.Backend.Reset(c.ctx, c.Key, l.Limit)
			}
		}
		return a
	})
}

// sparing makes Delete end some of what it should.
func sparing(which func(c call, l window.Limit) bool) mistake {
	return instead("Delete", func(b *wrong, c call) (a answer) {
		if _, a.err = b.Backend.Delete(c.ctx, "nobody", c.scales...); a.err != nil {
			return a
		}
		for l := range b.Backend.List(c.ctx, c.Key) {
			if which(c, l.Limit) && (len(c.scales) == 0 || slices.Contains(c.scales, l.Limit.Scale)) {
				a.n++
				b.Backend.Reset(c.ctx, c.Key, l.Limit)
			}
		}
		return a
	})
}

// claiming changes the claims on places in flight. It is told how many are held.
func claiming(f func(b *wrong, claim *window.Claim, held uint64)) mistake {
	return instead("Exchange", func(b *wrong, c call) (a answer) {
		for i, claim := range c.claims {
			claim.Wants = slices.Clone(claim.Wants)
			known := make([]window.Places, 1)
			b.Backend.Exchange(c.ctx, []window.Claim{{Key: claim.Key, Name: claim.Name}}, known)
			f(b, &claim, known[0].Used)
			a.err = errors.Join(a.err, b.Backend.Exchange(c.ctx, []window.Claim{claim}, c.places[i:i+1]))
		}
		return a
	})
}

// placing changes the answers to claims.
func placing(f func(p *window.Places)) mistake {
	return instead("Exchange", func(b *wrong, c call) answer {
		a := b.right(c)
		for i := range c.places {
			f(&c.places[i])
		}
		return a
	})
}

// later returns a window whose end is later.
func later(w window.Window, d time.Duration) window.Window {
	if w.Left > 0 {
		w.ExpiresAt = w.ExpiresAt.Add(d)
		w.Left += d
	}
	return w
}

// wanting changes wants of places in flight. It is told how many are held.
func wanting(f func(w *window.Want, held uint64)) mistake {
	return claiming(func(_ *wrong, c *window.Claim, held uint64) {
		for i := range c.Wants {
			f(&c.Wants[i], held)
		}
	})
}

// lasting changes how long fixed windows last, and the end that is returned.
func lasting(longer, hidden time.Duration) mistake {
	last := limit(func(l *window.Limit) {
		if l.Algorithm == window.FixedWindow && l.Scale >= window.MinScale {
			l.Scale += longer
		}
	})
	return func(b *wrong, c call) answer {
		a := last(b, c)
		a.Window = later(a.Window, -hidden)
		return a
	}
}

// ofLength turns windows of the calendar into those of a fixed length.
func ofLength(a window.Algorithm) mistake {
	days := map[window.Calendar]time.Duration{window.Day: 1, window.Week: 7, window.Month: 30, window.Year: 365}
	return limit(func(l *window.Limit) {
		if l.Calendar != 0 {
			*l = window.Limit{Name: l.Name, Max: l.Max, Scale: days[l.Calendar] * 24 * time.Hour, Algorithm: a}
		}
	})
}

// cut returns a minute in place of scales in which tests count at one time.
func cut(scale time.Duration) time.Duration {
	if scale > 0 {
		return time.Minute
	}
	return scale
}

// unless returns err unless it is one that is accepted.
func unless(err, accepted error) error {
	if errors.Is(err, accepted) {
		return nil
	}
	return err
}

// bounds makes a backend one that has only the algorithm, the MaxCount and the Precision of a Subject. If it
// SkipsDenied, it does not count hits on windows over their limit.
func bounds(s backendtest.Subject) mistake {
	var mu sync.Mutex // is held while a call is made
	check := func(l window.Limit) error {
		most := max(l.Max, l.Burst)
		switch {
		case s.SkipsDenied && l.Algorithm != s.Algorithm:
			return window.ErrUnsupported
		case most > s.MaxCount:
			return &window.RangeError{Field: "Max", Value: fmt.Sprint(most), Bound: fmt.Sprint("at most ", s.MaxCount)}
		}
		return nil
	}
	return func(b *wrong, c call) (a answer) {
		mu.Lock()
		defer mu.Unlock()
		limited := c.Limit.Algorithm != 0
		for _, t := range append(slices.Clone(c.takes), c.Take) {
			if _, err := b.Backend.Check(t.Limit); err == nil && t.Limit.Algorithm != 0 {
				if err := check(t.Limit); err != nil {
					return answer{err: err}
				}
			}
		}
		fixed := limited && !c.Limit.Algorithm.Rolling()
		w, room := window.Window{}, s.MaxCount
		if limited && c.method != "Check" {
			w = b.state(c)
			room -= min(room, w.Count)
		}
		switch {
		case c.method == "Set" && c.N > s.MaxCount:
			return answer{err: window.ErrRange}
		case c.method == "Charge" && c.Limit.Algorithm != window.TokenBucket:
			c.N = min(c.N, room)
		case c.method == "Hit" && fixed && w.Left > 0 && s.SkipsDenied && w.Count > c.Limit.Max:
			return answer{Window: w}
		case c.method == "Hit" && fixed && w.Left > 0 && c.N > room:
			w.Refused = true
			return answer{Window: w}
		case c.method == "Hit" && fixed:
			c.N = min(c.N, room)
		}
		coarse := returned(func(_ *wrong, c call, w *window.Window) {
			if c.Limit.Algorithm.Rolling() && w.RetryAfter != window.Never {
				w.RetryAfter = (w.RetryAfter + s.Precision - 1).Truncate(s.Precision)
			}
		})
		a = coarse(b, c)
		if c.method == "Check" {
			a.traits = window.Traits{MaxCount: s.MaxCount, Precision: s.Precision}
		}
		return a
	}
}
