package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// The algorithms of broken backends: f, t, w and l are fixed windows, token buckets, sliding windows and sliding logs.
var algorithmOf = map[rune]window.Algorithm{
	'f': window.FixedWindow, 't': window.TokenBucket, 'w': window.SlidingWindow, 'l': window.SlidingLog,
}

// Properties of the suite, by which mistakes are seen.
const (
	byMethods    = "a backend has all methods but those that it leaves out"
	byCheck      = "Check returns the error of every call"
	byContext    = "a call whose context has ended does nothing"
	byClose      = "a call after Close fails with window.ErrClosed"
	byKeys       = "keys and limits are independent"
	byLargest    = "numbers can be large"
	byLoops      = "the loop of a list may call the backend, and end early"
	byVectors    = "vectors"
	byModel      = "random calls agree with a model"
	byTwo        = "random calls of two clients agree with a model"
	byStorms     = "concurrent takes and give-backs leave what is held"
	byOrder      = "of takes in opposite order one is granted"
	byEndings    = "windows that end under concurrent takes exceed no limit"
	byFlights    = "in flight: vectors"
	byPlaceKeys  = "in flight: keys and names are independent"
	byPlacesNow  = "in flight: concurrent claims are granted up to Max"
	byPlaceModel = "in flight: random claims agree with a model"
)

// most is the MaxCount of the backends in overMost.
const most = 1 << 40

// broken is a backend with a mistake, and the properties that do not hold with some algorithms. Others may not hold, too.
type broken struct {
	name    string
	in      string
	seen    []string
	mistake mistake
}

// overMost are backends with a largest count of most.
var overMost = []broken{
	{"limits of takes over MaxCount are accepted", "ft", []string{byCheck}, instead(take, func(b attempt, c call) answer {
		c.Limit.Max = min(c.Limit.Max, most)
		return b.right(c)
	})},
	{"Check knows no largest Max", "ft", []string{byCheck}, instead(check, func(b attempt, c call) answer {
		c.Limit.Max = min(c.Limit.Max, 5)
		return b.right(c)
	})},
	{"Set accepts counts over MaxCount", "f", []string{byLargest}, instead(set, func(b attempt, c call) answer {
		c.N = min(c.N, most)
		return b.right(c)
	})},
	{"the error of a number does not match window.ErrRange", "ft", []string{byCheck}, hiding(window.ErrRange)},
	{"Charge fails with window.ErrRange beyond the largest count", "ft", []string{byLargest}, instead(charge, func(b attempt, c call) answer {
		if sum := b.state(c).Count + c.N; sum > most || c.Limit.Algorithm == window.TokenBucket && sum > 2*limits.Capacity(&c.Limit) {
			return answer{err: window.ErrRange}
		}
		return b.right(c)
	})},
}

// unbounded are backends that have no largest count.
var unbounded = []broken{
	{"fixed and aligned windows share a window", "ft", []string{byKeys, byModel}, ofLimits(func(l *window.Limit) {
		if l.Algorithm == window.AlignedWindow {
			l.Algorithm = window.FixedWindow
		}
	})},
	{"key and name are concatenated, with a colon", "f", []string{byKeys}, ofCalls(func(_ attempt, c *call) {
		if c.Limit.Name != "" {
			c.Key += ":" + c.Limit.Name
			c.Limit.Name = ""
		}
	})},
	{"keys are cut at 255 bytes", "f", []string{byKeys}, ofKeys(func(key string) string { return key[:min(len(key), 255)] })},
	{"keys are made valid UTF-8", "f", []string{byKeys}, ofKeys(func(key string) string { return strings.ToValidUTF8(key, "?") })},
	{"with more than 20 windows, one is lost", "f", []string{byKeys}, ofWindows(func(b attempt, c call, w *window.Window) {
		if counts := b.counts(); c.method == charge && len(counts) > 20 {
			for lost := range counts {
				b.to(call{Take: lost}, reset, 0)
				break
			}
		}
	})},

	// Errors.
	{"the context is checked after the call", "f", []string{byContext}, checkedLate},
	{"the error does not match that of the context", "f", []string{byContext}, hiding(context.Canceled)},
	{"positive scales under 1 ms are accepted", "ft", []string{byCheck}, ofLimits(func(l *window.Limit) {
		if l.Scale > 0 {
			l.Scale = max(l.Scale, window.MinScale)
		}
	})},
	{"unknown algorithms are accepted", "ft", []string{byCheck}, ofLimits(func(l *window.Limit) {
		if l.Algorithm > 200 {
			l.Algorithm = window.FixedWindow
		}
	})},
	{"the error of a scale does not match window.ErrScale", "ft", []string{byCheck}, hiding(window.ErrScale)},
	{"Delete accepts scales under 1 ms", "ft", []string{byCheck}, instead(deleteAll, func(b attempt, c call) answer {
		c.scales = slices.DeleteFunc(slices.Clone(c.scales), func(scale time.Duration) bool { return scale < window.MinScale })
		return b.right(c)
	})},
	{"the error after Close does not match window.ErrClosed", "f", []string{byClose}, hiding(window.ErrClosed)},
	{"TakeAll is that of Unimplemented", "f", []string{byMethods}, instead(takeAll, func(attempt, call) answer {
		return answer{err: window.ErrUnsupported}
	})},

	// Hits and charges.
	{"Charge counts only what fits", "ftwl", []string{byModel}, instead(charge, func(b attempt, c call) answer {
		holds := limits.Capacity(&c.Limit)
		c.N = min(c.N, holds-min(holds, b.state(c).Count))
		return b.right(c)
	})},
	{"counts wrap around", "f", []string{byLargest}, instead(charge, func(b attempt, c call) answer {
		if sum := b.state(c).Count + c.N; sum > window.Unlimited {
			return b.to(c, set, sum%window.Unlimited)
		}
		return b.right(c)
	})},
	{"a bucket owes more than its burst", "t", []string{byModel, byVectors}, instead(charge, func(b attempt, c call) answer {
		before := b.state(c).Count
		a := b.right(c)
		a.Count = max(a.Count, before+c.N)
		return a
	})},
	{"hits are counted between reading and adding", "f", []string{byStorms}, instead(hit, func(b attempt, c call) answer {
		if a := b.uncounted(c); b.pause() {
			return a // what others have counted is lost, or this is
		}
		return b.right(c)
	})},
	{"windows are opened between reading and opening", "f", []string{byStorms}, instead(hit, func(b attempt, c call) answer {
		if b.state(c).Left == 0 {
			b.pause()
			return b.to(c, set, c.N)
		}
		return b.right(c)
	})},
	{"a hit on a full window is not counted", "f", []string{byStorms, byVectors}, instead(hit, func(b attempt, c call) answer {
		if w := b.state(c); w.Left > 0 && w.Count >= c.Limit.Max {
			return b.uncounted(c)
		}
		return b.right(c)
	})},
	{"a hit of 0 opens no window", "f", []string{byModel}, instead(hit, func(b attempt, c call) answer {
		if c.N == 0 && b.state(c).Left == 0 {
			return answer{}
		}
		return b.right(c)
	})},
	{"a hit of 0 counts", "twl", []string{byVectors}, instead(hit, func(b attempt, c call) answer {
		c.N = max(c.N, 1)
		return b.right(c)
	})},
	{"a hit moves the end of the window", "f", []string{byModel, byVectors}, slides},
	{"a count moves the end of a window of the calendar", "f", []string{byModel}, ofWindows(func(_ attempt, _ call, w *window.Window) {
		*w = postponed(*w, -time.Duration(w.Count)*time.Millisecond)
	})},

	// Peek, Set, Reset and Delete.
	{"Peek returns no RetryAfter", "twl", []string{byModel, byVectors}, ofWindows(func(_ attempt, c call, w *window.Window) {
		if c.method == peek {
			w.RetryAfter = 0
		}
	})},
	{"Peek opens a window", "f", []string{byModel}, ofWindows(func(b attempt, c call, w *window.Window) {
		if c.method == peek {
			b.to(c, hit, 0)
		}
	})},
	{"Set keeps the end of the window", "f", []string{byModel}, ofWindows(func(b attempt, c call, w *window.Window) {
		if was := b.before(c); c.method == set && was.ExpiresAt.After(b.now()) {
			*w = postponed(*w, was.ExpiresAt.Sub(w.ExpiresAt))
		}
	})},
	{"Set to 0 ends the window", "f", []string{byModel}, instead(set, func(b attempt, c call) answer {
		if c.N == 0 {
			return b.to(c, reset, 0)
		}
		return b.right(c)
	})},
	{"Reset ends the windows of all algorithms", "ft", []string{byModel}, ending(reset, func(l, of window.Limit) bool {
		return l.Scale == of.Scale && l.Name == of.Name
	})},
	{"Reset ends the windows of all start days", "f", []string{byModel}, ending(reset, func(l, of window.Limit) bool {
		return of.Calendar != 0 && l.Calendar == of.Calendar && l.Name == of.Name
	})},
	{"Reset clears the count and keeps the end", "f", []string{byModel}, instead(reset, func(b attempt, c call) answer {
		b.clear(c)
		return answer{}
	})},
	{"Delete ends the windows of all scales, whatever the scales", "ft", []string{byModel}, instead(deleteAll, func(b attempt, c call) answer {
		c.scales = nil
		return b.right(c)
	})},
	{"Delete ends the windows of keys with the same prefix", "ft", []string{byModel}, instead(deleteAll, func(b attempt, c call) (a answer) {
		for l := range b.Backend.List(b.ctx) {
			if strings.HasPrefix(l.Key, c.Key) {
				one := c
				one.Key = l.Key
				a.deleted += b.right(one).deleted
			}
		}
		return a
	})},

	// Takes.
	{"a take up to the limit is refused", "ftwl", []string{byStorms, byModel}, ofCapacity(func(holds uint64) uint64 { return holds - min(holds, 1) })},
	{"one more than the limit is granted", "twl", []string{byStorms, byVectors, byModel}, ofCapacity(func(holds uint64) uint64 { return holds + 1 })},
	{"takes are counted between reading and adding", "ftwl", []string{byStorms}, takesSlowly},
	{"takes are counted between reading and adding", "f", []string{byEndings}, takesSlowly},
	{"a take that is refused opens a window", "f", []string{byModel}, ofRefusals(func(b attempt, c call, _ *window.Window) { b.to(c, hit, 0) })},
	{"a hit that is refused forgets what was counted", "twl", []string{byModel}, ofRefusals(func(b attempt, c call, _ *window.Window) { b.to(c, reset, 0) })},
	{"several takes open the windows before the refused one", "f", []string{byModel}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		for _, c := range all {
			if b.to(c, peek, c.N).Refused {
				break
			}
			b.to(c, hit, 0)
		}
		return b.takeAll(all, windows)
	})},
	{"several takes are made one by one, and given back if one is refused", "ftwl", []string{byOrder}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		for i, c := range all {
			if windows[i] = b.to(c, take, c.N).Window; windows[i].Refused {
				time.Sleep(50 * time.Microsecond)
				for j, c := range all[:i] {
					c.id = windows[j].ID
					b.to(c, giveBack, c.N)
				}
				return false
			}
			time.Sleep(time.Microsecond)
		}
		return true
	})},
	{"several takes of one count are checked one by one", "ftwl", []string{byModel}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		return b.fit(all, windows) && b.charge(all, windows)
	})},
	{"the sum of count and n wraps around", "tw", []string{byLargest}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		if c := all[0]; int64(b.state(c).Count+c.N) < 0 {
			return b.charge(all, windows)
		}
		return b.takeAll(all, windows)
	})},

	// Give-backs and IDs.
	{"GiveBack gives back twice", "ftwl", []string{byStorms, byModel}, instead(giveBack, func(b attempt, c call) answer {
		b.right(c)
		return b.right(c)
	})},
	{"GiveBack ignores the ID", "ftwl", []string{byModel}, instead(giveBack, func(b attempt, c call) answer {
		if was := b.before(c); was.ID != 0 {
			c.id = was.ID
		}
		return b.right(c)
	})},
	{"GiveBack subtracts between reading and writing", "fwl", []string{byStorms}, instead(giveBack, func(b attempt, c call) answer {
		if b.pause() {
			return answer{ok: true} // what others have counted is lost, or this is
		}
		return b.right(c)
	})},
	{"a window of which all is given back ends", "f", []string{byModel}, instead(giveBack, func(b attempt, c call) answer {
		a := b.right(c)
		if a.ok && b.state(c).Count == 0 {
			b.to(c, reset, 0)
		}
		return a
	})},
	{"the ID is the end", "f", []string{byModel}, ofWindows(func(_ attempt, _ call, w *window.Window) { w.ID = w.ExpiresAt.UnixNano() })},
	{"a hit changes the ID", "f", []string{byModel}, ofWindows(func(b attempt, c call, w *window.Window) {
		if c.method == hit {
			w.ID += b.hits.Add(1)
		}
	})},
	{"a count that another client has lowered is taken for another window", "fl", []string{byTwo}, instead(giveBack, func(b attempt, c call) answer {
		if b.state(c).Count < b.before(c).Count {
			return answer{}
		}
		return b.right(c)
	})},
	{"a client that has found a window full refuses until its end", "ftwl", []string{byTwo}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		for i, c := range all {
			if was := b.before(c); len(all) == 1 && c.Limit.Max > 0 && was.Count >= c.Limit.Max && was.ExpiresAt.Equal(b.state(c).ExpiresAt) {
				windows[i] = was
				windows[i].Refused = true
				windows[i].RetryAfter = was.ExpiresAt.Sub(b.now())
				return false
			}
		}
		return b.takeAll(all, windows)
	})},

	// Ends, counts and times.
	{"a window is active at its end", "f", []string{byModel, byVectors}, ofLengths(1, 1)},
	{"a window ends a millisecond before its ExpiresAt", "f", []string{byModel}, ofLengths(-time.Millisecond, -time.Millisecond)},
	{"ExpiresAt is late", "f", []string{byModel}, ofWindows(func(_ attempt, _ call, w *window.Window) { *w = postponed(*w, time.Millisecond) })},
	{"ExpiresAt is late", "twl", []string{byVectors, byModel}, ofWindows(func(_ attempt, _ call, w *window.Window) { *w = postponed(*w, 1) })},
	{"counts are rounded down", "t", []string{byVectors, byModel}, ofWindows(func(_ attempt, c call, w *window.Window) {
		w.Count = uint64(float64(w.Left) / float64(c.Limit.Scale) * float64(c.Limit.Max) * (1 + 1e-12))
	})},
	{"nothing comes back before a scale without hits", "w", []string{byVectors}, slides},
	{"a token takes a whole number of nanoseconds", "t", []string{byVectors}, ofLimits(func(l *window.Limit) {
		if n := time.Duration(max(1, l.Max)); l.Algorithm == window.TokenBucket && n < l.Scale {
			l.Scale = (l.Scale + n - 1) / n * n
		}
	})},

	// RetryAfter.
	{"RetryAfter of a take over the limit is Left", "ftwl", []string{byModel}, retrying(func(w window.Window) time.Duration {
		if w.RetryAfter == window.Never {
			return max(1, w.Left)
		}
		return w.RetryAfter
	})},
	{"RetryAfter is a nanosecond short", "twl", []string{byVectors, byModel}, retrying(func(w window.Window) time.Duration { return max(1, w.RetryAfter-1) })},

	// Calendars.
	{"windows start on the first day", "f", []string{byKeys, byModel}, ofLimits(func(l *window.Limit) { l.StartDay = 0 })},
	{"UTC has two counts, by how it is written", "f", []string{byModel}, ofLimits(func(l *window.Limit) {
		if l.Zone == "UTC" {
			l.Zone = "Etc/UTC"
		}
	})},
	{"a day has 24 hours, a month 30 days", "f", []string{byModel}, ofLength(window.AlignedWindow)},

	// Places in flight.
	{"the context of a claim is checked after it", "f", []string{byContext}, instead(exchange, checkedLate)},
	{"places are granted between reading and adding", "f", []string{byPlacesNow}, ofWants(func(w *window.Want, held uint64) {
		if held+w.N <= w.Max {
			time.Sleep(100 * time.Microsecond)
			w.Max = window.MaxPlaces
		}
	})},
	{"places come back a little early", "f", []string{byFlights}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Lease -= c.Lease / 50 })},
	{"late claims are made", "f", []string{byFlights, byPlaceModel}, ofClaims(func(b attempt, c *window.Claim, _ uint64) { c.Seq = uint64(b.hits.Add(1)) })},
	{"what a process holds is added up", "f", []string{byFlights}, ofClaims(func(_ attempt, c *window.Claim, held uint64) { c.Held += held })},
	{"what the store does not know is always believed", "f", []string{byFlights, byPlaceModel}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Strict = false })},
	{"what is held over the Max is lost", "f", []string{byFlights}, ofClaims(func(_ attempt, c *window.Claim, held uint64) {
		if held > c.HeldMax {
			c.Held = 0
		}
	})},
	{"nobody leaves room for the first in line", "f", []string{byFlights, byPlaceModel}, ofWants(func(w *window.Want, held uint64) {
		if held+w.N <= w.Max {
			w.Max = window.MaxPlaces
		}
	})},
	{"a process that is silent keeps its position in line", "f", []string{byFlights, byPlaceModel}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Lease *= 2 })},
	{"a want overtakes one of its process that waits", "f", []string{byFlights, byPlaceModel}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) {
		slices.SortStableFunc(c.Wants, func(a, b window.Want) int { return int(a.N) - int(b.N) })
	})},
	{"the places of key and name are those of both together", "f", []string{byPlaceKeys}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) {
		c.Key = c.Name + c.Key
		c.Name = ""
	})},
	{"tokens do not grow", "f", []string{byFlights, byPlaceModel}, ofPlaces(func(p *window.Places) {
		for i, t := range p.Tokens {
			p.Tokens[i] = min(t, 2)
		}
	})},
	{"only the first of several claims is made", "f", []string{byPlaceKeys}, instead(exchange, func(b attempt, c call) answer {
		c.claims = c.claims[:1]
		return b.right(c)
	})},
	{"places count as hits", "f", []string{byPlaceKeys}, ofClaims(func(b attempt, c *window.Claim, _ uint64) {
		b.Backend.Charge(context.Background(), c.Key, window.Limit{Max: 1, Scale: time.Minute, Algorithm: window.FixedWindow}, 1)
	})},
	{"it is not known when places come back", "f", []string{byFlights}, ofPlaces(func(p *window.Places) { p.Next = 0 })},
	{"places of one limit are listed", "f", []string{byPlaceModel}, instead(listPlaces, func(b attempt, c call) answer {
		a := b.right(c)
		a.held = a.held[:min(len(a.held), 1)]
		return a
	})},
	{"the context of a list of places is ignored", "f", []string{byContext}, instead(listPlaces, func(b attempt, c call) answer { return b.endless().right(c) })},

	// Lists.
	{"the context of a list is ignored", "f", []string{byContext}, instead(list, func(b attempt, c call) answer { return b.endless().right(c) })},
	{"something is listed twice", "ft", []string{byKeys, byModel}, ofListed(func(l window.Listed) []window.Listed { return []window.Listed{l, l} })},
	{"one count is not listed", "ft", []string{byKeys, byModel}, instead(list, func(b attempt, c call) answer {
		each, n := c.each, 0
		c.each = func(l window.Listed) bool { n++; return n == 2 || each(l) }
		return b.right(c)
	})},
	{"windows that have ended are listed", "ft", []string{byModel}, instead(list, func(b attempt, c call) answer {
		for of, w := range b.counts() {
			if !w.ExpiresAt.After(b.now()) && c.lists(of.Key) {
				c.each(window.Listed{Key: of.Key, Limit: of.Limit})
			}
		}
		return b.right(c)
	})},
	{"windows of the calendar are listed as those of UTC", "f", []string{byKeys, byModel}, ofEach(func(l *window.Listed) {
		l.Limit.Zone = ""
	})},
	{"another Max is listed", "f", []string{byKeys}, ofEach(func(l *window.Listed) { l.Limit.Max++ })},
	{"windows are listed without their end", "ft", []string{byKeys, byModel}, ofEach(func(l *window.Listed) {
		l.Window.ExpiresAt = time.Time{}
	})},
	{"digests of long keys are listed as keys", "f", []string{byKeys}, ofEach(func(l *window.Listed) {
		l.Digest = false
	})},
	{"a loop over List goes on after its end", "f", []string{byLoops}, instead(list, func(b attempt, c call) answer {
		each := c.each
		c.each = func(l window.Listed) bool { each(l); return true }
		return b.right(c)
	})},
	{"a lock is held in the loop over List", "f", []string{byLoops}, locked()},

	// Errors of the store.
	{flaky, "ftwl", []string{byStorms, byOrder, byEndings, byModel}, func(b attempt, c call) answer {
		n := b.hits.Add(1)
		if c.method != check && n%37 == 0 {
			if n%2 == 0 {
				b.right(c)
			}
			return answer{err: errFlaky}
		}
		return b.right(c)
	}},
}

// flaky is true of a backend that returns errFlaky for some calls, every other of which has counted.
const flaky = "some calls fail"

var errFlaky = errors.New("the store was away")

// Mistakes that several rows have.
var (
	slides = ofWindows(func(b attempt, c call, w *window.Window) {
		if c.method == hit && w.Left > 0 && !w.Refused {
			*w = b.to(c, set, w.Count).Window
		}
	})
	takesSlowly = ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		if !b.fit(all, windows) {
			return false
		}
		b.pause()
		return b.charge(all, windows)
	})
)
