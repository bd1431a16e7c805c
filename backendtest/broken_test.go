package backendtest

import (
	"context"
	"fmt"
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
	byClaims     = "in flight: a claim whose context has ended does nothing"
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
	{"limits over MaxCount are accepted", "ft", []string{byCheck}, ofLimits(func(l *window.Limit) {
		l.Max = min(l.Max, most)
		l.Burst = min(l.Burst, most)
	})},
	{"limits of hits over MaxCount are accepted", "f", []string{byCheck}, instead(hit, func(b attempt, c call) answer {
		c.Limit.Max = min(c.Limit.Max, most)
		return b.right(c)
	})},
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
	{"the scales of a key share a window", "ftwl", []string{byKeys}, ofLimits(func(l *window.Limit) { l.Scale = cut(l.Scale) })},
	{"the names of limits share a window", "ft", []string{byKeys, byModel}, ofLimits(func(l *window.Limit) { l.Name = "" })},
	{"fixed and aligned windows share a window", "ft", []string{byKeys, byModel}, ofLimits(func(l *window.Limit) {
		if l.Algorithm == window.AlignedWindow {
			l.Algorithm = window.FixedWindow
		}
	})},
	{"name and key are concatenated", "ft", []string{byKeys}, ofCalls(func(_ attempt, c *call) {
		c.Key = c.Limit.Name + c.Key
		c.Limit.Name = ""
	})},
	{"key and name are concatenated, with a colon", "ft", []string{byKeys}, ofCalls(func(_ attempt, c *call) {
		if c.Limit.Name != "" {
			c.Key += ":" + c.Limit.Name
			c.Limit.Name = ""
		}
	})},
	{"key and scale are concatenated", "ft", []string{byKeys}, ofCalls(func(_ attempt, c *call) {
		c.Key += fmt.Sprint(c.Limit.Scale.Milliseconds())
		c.Limit.Scale = cut(c.Limit.Scale)
	})},
	{"scale and key are concatenated", "ft", []string{byKeys}, ofCalls(func(_ attempt, c *call) {
		c.Key = fmt.Sprint(c.Limit.Scale.Milliseconds()) + c.Key
		c.Limit.Scale = cut(c.Limit.Scale)
	})},
	{"keys are cut at 255 bytes", "ft", []string{byKeys}, ofKeys(func(key string) string { return key[:min(len(key), 255)] })},
	{"keys are folded to lower case", "ft", []string{byKeys}, ofKeys(strings.ToLower)},
	{"keys are trimmed", "ft", []string{byKeys}, ofKeys(strings.TrimSpace)},
	{"keys are made valid UTF-8", "ft", []string{byKeys}, ofKeys(func(key string) string { return strings.ToValidUTF8(key, "?") })},
	{"with more than 20 windows, one is lost", "f", []string{byKeys}, ofWindows(func(b attempt, c call, w *window.Window) {
		if counts := b.counts(); c.method == charge && len(counts) > 20 {
			for lost := range counts {
				b.to(call{Take: lost}, reset, 0)
				break
			}
		}
	})},

	// Errors.
	{"the context is ignored", "ft", []string{byContext}, func(b attempt, c call) answer { return b.endless().right(c) }},
	{"the context is checked after the call", "ft", []string{byContext}, checkedLate},
	{"the error does not match that of the context", "ft", []string{byContext}, hiding(context.Canceled)},
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
	{"calls after Close succeed", "ft", []string{byClose}, ofErrors(func(_ call, err error) error { return unless(err, window.ErrClosed) })},
	{"Peek after Close succeeds", "ft", []string{byClose}, ofErrors(func(c call, err error) error {
		if c.method == peek {
			return unless(err, window.ErrClosed)
		}
		return err
	})},
	{"the error after Close does not match window.ErrClosed", "ft", []string{byClose}, hiding(window.ErrClosed)},
	{"TakeAll is that of Unimplemented", "ft", []string{byMethods}, instead(takeAll, func(attempt, call) answer {
		return answer{err: window.ErrUnsupported}
	})},

	// Hits and charges.
	{"Charge counts only what fits", "ftwl", []string{byModel}, chargesWhatFits},
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
	{"one hit in 100 is not counted", "f", []string{byStorms}, instead(hit, func(b attempt, c call) answer {
		if b.hits.Add(1)%100 == 0 {
			return b.uncounted(c)
		}
		return b.right(c)
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
	{"a hit that would be denied is not counted", "f", []string{byStorms, byVectors, byModel}, instead(hit, func(b attempt, c call) answer {
		if a := b.uncounted(c); a.Left > 0 && a.Count > c.Limit.Max {
			return a
		}
		return b.right(c)
	})},
	{"a hit on a full window is not counted", "f", []string{byStorms, byVectors}, instead(hit, func(b attempt, c call) answer {
		if w := b.state(c); w.Left > 0 && w.Count >= c.Limit.Max {
			return b.uncounted(c)
		}
		return b.right(c)
	})},
	{"a hit on a window over its limit clears the count", "f", []string{byStorms, byModel}, instead(hit, func(b attempt, c call) answer {
		if w := b.state(c); w.Count > c.Limit.Max {
			b.clear(c)
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
	{"Peek takes", "ftwl", []string{byModel}, peekTakes},
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
	{"Peek returns a window that is over", "f", []string{byModel}, ofWindows(func(b attempt, c call, w *window.Window) {
		if was := b.before(c); c.method == peek && w.Left == 0 && !was.ExpiresAt.After(b.now()) {
			*w = was
		}
	})},
	{"Set adds to the count", "ftwl", []string{byVectors, byModel}, setAdds},
	{"Set keeps the end of the window", "f", []string{byModel}, ofWindows(func(b attempt, c call, w *window.Window) {
		if was := b.before(c); c.method == set && was.ExpiresAt.After(b.now()) {
			*w = postponed(*w, was.ExpiresAt.Sub(w.ExpiresAt))
		}
	})},
	{"Set opens no window", "f", []string{byModel}, instead(set, func(b attempt, c call) answer {
		if b.state(c).Left == 0 {
			return answer{Window: window.Window{Count: c.N}}
		}
		return b.right(c)
	})},
	{"Set to 0 ends the window", "f", []string{byModel}, instead(set, func(b attempt, c call) answer {
		if c.N == 0 {
			return b.to(c, reset, 0)
		}
		return b.right(c)
	})},
	{"Set to 0 does nothing", "twl", []string{byVectors}, instead(set, func(b attempt, c call) answer {
		if c.N == 0 {
			return answer{}
		}
		return b.right(c)
	})},
	{"Reset does nothing", "ftwl", []string{byModel}, instead(reset, func(b attempt, c call) answer { return b.to(c, check, 0) })},
	{"Reset ends the windows of all scales", "ft", []string{byModel}, ending(reset, func(window.Limit, window.Limit) bool { return true })},
	{"Reset ends the windows of all names", "ft", []string{byModel}, ending(reset, func(l, of window.Limit) bool {
		return l.Scale == of.Scale && l.Algorithm == of.Algorithm
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
	{"Delete always returns 0", "ft", []string{byModel}, instead(deleteAll, func(b attempt, c call) answer { return answer{err: b.right(c).err} })},
	{"Delete ends the windows of all scales, whatever the scales", "ft", []string{byModel}, deletesAll},
	{"Delete without scales does nothing", "ft", []string{byModel}, sparing(func(c call, l window.Limit) bool { return len(c.scales) > 0 })},
	{"Delete ends only windows without a name", "ft", []string{byModel}, sparing(func(_ call, l window.Limit) bool { return l.Name == "" })},
	{"Delete ends only fixed windows", "ft", []string{byModel}, sparing(func(_ call, l window.Limit) bool { return l.Algorithm == window.FixedWindow })},
	{"Delete ends no windows of the calendar", "f", []string{byModel}, sparing(func(_ call, l window.Limit) bool { return l.Calendar == 0 })},
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
	{"Delete counts windows that are over", "f", []string{byModel}, instead(deleteAll, func(b attempt, c call) answer {
		a := b.right(c)
		for of, w := range b.counts() {
			if of.Key == c.Key && !w.ExpiresAt.After(b.now()) {
				a.deleted++
			}
		}
		return a
	})},

	// Takes.
	{"a take is granted if the limit is not reached", "ftwl", []string{byModel}, takesTooMuch},
	{"a take up to the limit is refused", "ftwl", []string{byStorms, byModel}, refusesLast},
	{"one more than the limit is granted", "twl", []string{byStorms, byVectors, byModel}, ofCapacity(func(holds uint64) uint64 { return holds + 1 })},
	{"a bucket holds Max, whatever Burst is", "t", []string{byModel, byVectors}, ofLimits(func(l *window.Limit) {
		if l.Algorithm == window.TokenBucket {
			l.Burst = 0
		}
	})},
	{"takes are counted between reading and adding", "ftwl", []string{byStorms}, takesSlowly},
	{"takes are counted between reading and adding", "f", []string{byEndings}, takesSlowly},
	{"a take that is refused counts", "ftwl", []string{byModel, byStorms}, refusalCounts},
	{"a take that is refused counts what is left", "f", []string{byModel}, ofRefusals(func(b attempt, c call, w *window.Window) {
		if w.Left > 0 && w.Count < c.Limit.Max {
			b.to(c, charge, c.Limit.Max-w.Count)
		}
	})},
	{"a take that is refused opens a window", "f", []string{byModel}, ofRefusals(func(b attempt, c call, _ *window.Window) { b.to(c, hit, 0) })},
	{"a hit that is refused forgets what was counted", "twl", []string{byModel}, ofRefusals(func(b attempt, c call, _ *window.Window) { b.to(c, reset, 0) })},
	{"Refused is not set", "ftwl", []string{byModel}, ofRefusals(func(_ attempt, _ call, w *window.Window) { w.Refused = false })},
	{"several takes open the windows before the refused one", "f", []string{byModel}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		for _, c := range all {
			if b.to(c, peek, c.N).Refused {
				break
			}
			b.to(c, hit, 0)
		}
		return b.takeAll(all, windows)
	})},
	{"several takes up to the refused one count", "ftwl", []string{byModel}, keepsFirst},
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
	{"several takes of one count are checked one by one", "ftwl", []string{byModel}, checksEach},
	{"the sum of several takes is checked under the limit of each", "ftwl", []string{byModel}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		granted := b.takeAll(all, windows)
		for i, c := range all {
			if !granted && len(all) > 1 {
				windows[i] = b.to(c, peek, c.N).Window
			}
		}
		return granted
	})},
	{"numbers are those of 32 bits", "tw", []string{byVectors}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		if c := all[0]; uint32(b.state(c).Count+c.N) <= uint32(limits.Capacity(&c.Limit)) {
			return b.charge(all, windows)
		}
		return b.takeAll(all, windows)
	})},
	{"the sum of count and n wraps around", "tw", []string{byLargest}, wrapsSums},

	// Give-backs and IDs.
	{"GiveBack gives nothing back", "ftwl", []string{byModel}, givesNothingBack},
	{"GiveBack gives back twice", "ftwl", []string{byStorms, byModel}, givesBackTwice},
	{"GiveBack ignores the ID", "ftwl", []string{byModel}, givesBackToAny},
	{"GiveBack ignores the ID", "f", []string{byEndings}, givesBackToAny},
	{"GiveBack subtracts between reading and writing", "fwl", []string{byStorms}, instead(giveBack, func(b attempt, c call) answer {
		if b.pause() {
			return answer{ok: true} // what others have counted is lost, or this is
		}
		return b.right(c)
	})},
	{"GiveBack returns false", "ftwl", []string{byModel}, instead(giveBack, func(b attempt, c call) answer { return answer{err: b.right(c).err} })},
	{"GiveBack gives back what has come back by itself", "t", []string{byVectors, byModel}, instead(giveBack, func(b attempt, c call) answer {
		before := b.state(c).Count
		a := b.right(c)
		if rest := b.state(c).Count; a.ok && rest+c.N > before {
			b.to(c, set, before-min(before, c.N))
		}
		return a
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
	{"a count that another client has lowered is taken for another window", "fl", []string{byTwo}, losesOfTwo},
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
	{"a window ends a millisecond early", "f", []string{byModel, byVectors}, ofLengths(-time.Millisecond, 0)},
	{"a window ends a millisecond before its ExpiresAt", "f", []string{byModel}, ofLengths(-time.Millisecond, -time.Millisecond)},
	{"windows are those of the other algorithm", "f", []string{byModel}, ofLimits(func(l *window.Limit) {
		if l.Algorithm <= window.AlignedWindow && l.Algorithm > 0 {
			l.Algorithm = window.FixedWindow + window.AlignedWindow - l.Algorithm
		}
	})},
	{"ExpiresAt is late", "f", []string{byModel}, ofWindows(func(_ attempt, _ call, w *window.Window) { *w = postponed(*w, time.Millisecond) })},
	{"ExpiresAt is late", "twl", []string{byVectors, byModel}, ofWindows(func(_ attempt, _ call, w *window.Window) { *w = postponed(*w, 1) })},
	{"ExpiresAt is zero", "f", []string{byModel}, ofWindows(func(_ attempt, _ call, w *window.Window) { w.ExpiresAt = time.Time{} })},
	{"Left is always a scale", "f", []string{byModel}, ofWindows(func(_ attempt, c call, w *window.Window) { w.Left = c.Limit.Scale })},
	{"counts are rounded down", "t", []string{byVectors, byModel}, ofWindows(func(_ attempt, c call, w *window.Window) {
		w.Count = uint64(float64(w.Left) / float64(c.Limit.Scale) * float64(c.Limit.Max) * (1 + 1e-12))
	})},
	{"hits of one time are one too many", "w", []string{byVectors, byModel}, ofWindows(func(b attempt, c call, w *window.Window) { w.Count -= min(w.Count, 1) })},
	{"nothing comes back before a scale without hits", "w", []string{byVectors}, slides},
	{"the limit is that of aligned windows", "wl", []string{byVectors, byModel}, ofLimits(func(l *window.Limit) {
		if l.Algorithm.Rolling() {
			l.Algorithm = window.AlignedWindow
		}
	})},
	{"a token takes a whole number of nanoseconds", "t", []string{byVectors}, ofLimits(func(l *window.Limit) {
		if n := time.Duration(max(1, l.Max)); l.Algorithm == window.TokenBucket && n < l.Scale {
			l.Scale = (l.Scale + n - 1) / n * n
		}
	})},
	{"a bucket holds more tokens after a long time", "t", []string{byVectors}, ofCalls(func(b attempt, c *call) {
		if was := b.before(*c); c.Limit.Algorithm == window.TokenBucket && !was.ExpiresAt.IsZero() && b.now().Sub(was.ExpiresAt) > c.Limit.Scale {
			c.Limit.Burst = 2 * limits.Capacity(&c.Limit)
		}
	})},
	{"with another limit, nothing is counted", "twl", []string{byVectors}, ofCalls(func(b attempt, c *call) {
		if b.another(*c) {
			b.to(*c, reset, 0)
		}
	})},
	{"with another limit, the time until the bucket is full stays", "t", []string{byVectors}, ofCalls(func(b attempt, c *call) {
		if was := b.before(*c); b.another(*c) {
			b.to(*c, set, uint64(was.ExpiresAt.Sub(b.now())/(c.Limit.Scale/time.Duration(max(1, c.Limit.Max)))))
		}
	})},

	// RetryAfter.
	{"RetryAfter of a take over the limit is Left", "ftwl", []string{byModel}, forgetsNever},
	{"RetryAfter is a nanosecond short", "twl", []string{byVectors, byModel}, retrying(func(w window.Window) time.Duration { return max(1, w.RetryAfter-1) })},
	{"RetryAfter is a millisecond long", "twl", []string{byVectors, byModel}, retrying(func(w window.Window) time.Duration { return w.RetryAfter + time.Millisecond })},
	{"RetryAfter is Left", "twl", []string{byVectors}, retrying(func(w window.Window) time.Duration { return max(1, w.Left) })},
	{"RetryAfter is 0", "twl", []string{byVectors}, retrying(func(window.Window) time.Duration { return 0 })},
	{"RetryAfter is that of a hit of 1", "twl", []string{byVectors, byModel}, ofWindows(func(b attempt, c call, w *window.Window) {
		if one := b.to(c, peek, 1).Window; w.Refused && one.Refused {
			w.RetryAfter = one.RetryAfter
		}
	})},
	{"RetryAfter of a hit of 0 is 0", "twl", []string{byVectors}, ofWindows(func(_ attempt, c call, w *window.Window) {
		if c.N == 0 {
			w.RetryAfter = 0
		}
	})},
	{"hits are granted a nanosecond early", "twl", []string{byVectors, byModel}, ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		if !b.fit(all[:1], windows) && windows[0].RetryAfter == 1 {
			return b.charge(all[:1], windows)
		}
		return b.takeAll(all, windows)
	})},

	// Calendars.
	{"the days, weeks, months and years of a key share a window", "f", []string{byKeys, byModel}, ofLimits(func(l *window.Limit) {
		l.Calendar = min(l.Calendar, window.Day)
		l.StartDay = 0
	})},
	{"windows are those of UTC", "f", []string{byKeys, byModel}, ofLimits(func(l *window.Limit) { l.Zone = "" })},
	{"windows start on the first day", "f", []string{byKeys, byModel}, ofLimits(func(l *window.Limit) { l.StartDay = 0 })},
	{"UTC has two counts, by how it is written", "f", []string{byModel}, ofLimits(func(l *window.Limit) {
		if l.Zone == "UTC" {
			l.Zone = "Etc/UTC"
		}
	})},
	{"a day has 24 hours, a month 30 days", "f", []string{byModel}, ofLength(window.AlignedWindow)},
	{"a window of a day opens with a hit and lasts a day", "f", []string{byModel}, ofLength(window.FixedWindow)},

	// Places in flight.
	{"the context of a claim is checked after it", "f", []string{byClaims}, instead(exchange, checkedLate)},
	{"a place more than Max is granted", "f", []string{byFlights, byPlaceModel}, ofWants(func(w *window.Want, _ uint64) { w.Max++ })},
	{"places are granted between reading and adding", "f", []string{byPlacesNow}, ofWants(func(w *window.Want, held uint64) {
		if held+w.N <= w.Max {
			time.Sleep(100 * time.Microsecond)
			w.Max = window.MaxPlaces
		}
	})},
	{"places have no lease", "f", []string{byFlights, byPlaceModel}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Lease = window.MaxLease })},
	{"places come back a little early", "f", []string{byFlights}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Lease -= c.Lease / 50 })},
	{"late claims are made", "f", []string{byFlights, byPlaceModel}, ofClaims(func(b attempt, c *window.Claim, _ uint64) { c.Seq = uint64(b.hits.Add(1)) })},
	{"what a process holds is added up", "f", []string{byFlights}, ofClaims(func(_ attempt, c *window.Claim, held uint64) { c.Held += held })},
	{"what the store does not know is always believed", "f", []string{byFlights, byPlaceModel}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Strict = false })},
	{"what the store does not know is always lost", "f", []string{byFlights, byPlaceModel}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) {
		c.Strict = true
		c.HeldMax = 0
	})},
	{"what is held over the Max is lost", "f", []string{byFlights}, ofClaims(func(_ attempt, c *window.Claim, held uint64) {
		if held > c.HeldMax {
			c.Held = 0
		}
	})},
	{"nobody waits in line", "f", []string{byFlights, byPlaceModel}, ofWants(func(w *window.Want, _ uint64) { w.Wait = false })},
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
	{"the places of all names are those of the key", "f", []string{byPlaceKeys}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Name = "" })},
	{"the places of keys are those of a part of them", "f", []string{byPlaceKeys}, ofClaims(func(_ attempt, c *window.Claim, _ uint64) { c.Key = c.Key[:min(len(c.Key), 255)] })},
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
	{"places of all keys are listed", "f", []string{byPlaceModel}, instead(listPlaces, func(b attempt, c call) answer {
		c.keys = nil
		return b.right(c)
	})},
	{"places are listed without who holds them", "f", []string{byPlaceModel}, instead(listPlaces, func(b attempt, c call) answer {
		a := b.right(c)
		for i := range a.held {
			a.held[i].ByProcess = nil
		}
		return a
	})},
	{"places of one limit are listed", "f", []string{byPlaceModel}, instead(listPlaces, func(b attempt, c call) answer {
		a := b.right(c)
		a.held = a.held[:min(len(a.held), 1)]
		return a
	})},
	{"the context of a list of places is ignored", "f", []string{byContext}, instead(listPlaces, func(b attempt, c call) answer { return b.endless().right(c) })},

	// Lists.
	{"List is that of Unimplemented", "f", []string{byMethods}, instead(list, func(attempt, call) answer {
		return answer{err: window.ErrUnsupported}
	})},
	{"the context of a list is ignored", "f", []string{byContext}, instead(list, func(b attempt, c call) answer { return b.endless().right(c) })},
	{"something is listed that nobody has counted", "ft", []string{byKeys, byModel}, instead(list, func(b attempt, c call) answer {
		c.each(window.Listed{Key: "invented", Limit: window.Limit{Scale: time.Hour, Algorithm: window.FixedWindow}})
		return b.right(c)
	})},
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
	{"names of limits are not listed", "ft", []string{byKeys, byModel}, ofLimit(func(l *window.Limit) { l.Name = "" })},
	{"scales are listed in milliseconds", "ft", []string{byKeys, byModel}, ofLimit(func(l *window.Limit) { l.Scale /= time.Millisecond })},
	{"windows of the calendar are listed as those of UTC", "f", []string{byKeys, byModel}, ofLimit(func(l *window.Limit) { l.Zone = "" })},
	{"another Max is listed", "ft", []string{byKeys}, ofLimit(func(l *window.Limit) { l.Max++ })},
	{"another count is listed", "ft", []string{byKeys, byModel}, ofListed(func(l window.Listed) []window.Listed {
		l.Window.Count++
		return []window.Listed{l}
	})},
	{"windows are listed without their end", "ft", []string{byKeys, byModel}, ofListed(func(l window.Listed) []window.Listed {
		l.Window.ExpiresAt = time.Time{}
		return []window.Listed{l}
	})},
	{"the counts of all keys are listed, whatever the keys", "ft", []string{byKeys, byModel}, instead(list, func(b attempt, c call) answer {
		c.keys = nil
		return b.right(c)
	})},
	{"digests of long keys are listed as keys", "ft", []string{byKeys}, ofListed(func(l window.Listed) []window.Listed {
		l.Digest = false
		return []window.Listed{l}
	})},
	{"a loop over List goes on after its end", "ft", []string{byLoops}, instead(list, func(b attempt, c call) answer {
		each := c.each
		c.each = func(l window.Listed) bool { each(l); return true }
		return b.right(c)
	})},
	{"a lock is held in the loop over List", "ft", []string{byLoops}, locked()},
}

// Mistakes that several rows have.
var (
	chargesWhatFits = instead(charge, func(b attempt, c call) answer {
		holds := limits.Capacity(&c.Limit)
		c.N = min(c.N, holds-min(holds, b.state(c).Count))
		return b.right(c)
	})
	slides = ofWindows(func(b attempt, c call, w *window.Window) {
		if c.method == hit && w.Left > 0 && !w.Refused {
			*w = b.to(c, set, w.Count).Window
		}
	})
	peekTakes = instead(peek, func(b attempt, c call) answer {
		a := b.right(c)
		if !a.Refused && a.err == nil {
			b.to(c, take, c.N)
		}
		return a
	})
	setAdds = instead(set, func(b attempt, c call) answer {
		c.N += b.state(c).Count
		return b.right(c)
	})
	deletesAll = instead(deleteAll, func(b attempt, c call) answer {
		c.scales = nil
		return b.right(c)
	})
	takesTooMuch = ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		if c := all[0]; len(all) == 1 && c.N <= limits.Capacity(&c.Limit) && b.state(c).Count < limits.Capacity(&c.Limit) {
			return b.charge(all, windows)
		}
		return b.takeAll(all, windows)
	})
	refusesLast = ofCapacity(func(holds uint64) uint64 { return holds - min(holds, 1) })
	takesSlowly = ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		if !b.fit(all, windows) {
			return false
		}
		b.pause()
		return b.charge(all, windows)
	})
	refusalCounts = ofRefusals(func(b attempt, c call, _ *window.Window) { b.to(c, charge, c.N) })
	keepsFirst    = ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		for i, c := range all {
			if windows[i] = b.to(c, take, c.N).Window; windows[i].Refused {
				return false
			}
		}
		return true
	})
	checksEach = ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		return b.fit(all, windows) && b.charge(all, windows)
	})
	wrapsSums = ofTakes(func(b attempt, all []call, windows []window.Window) bool {
		if c := all[0]; int64(b.state(c).Count+c.N) < 0 {
			return b.charge(all, windows)
		}
		return b.takeAll(all, windows)
	})
	givesNothingBack = instead(giveBack, func(b attempt, c call) answer {
		c.N = 0
		return b.right(c)
	})
	givesBackTwice = instead(giveBack, func(b attempt, c call) answer {
		b.right(c)
		return b.right(c)
	})
	givesBackToAny = instead(giveBack, func(b attempt, c call) answer {
		if was := b.before(c); was.ID != 0 {
			c.id = was.ID
		}
		return b.right(c)
	})
	losesOfTwo = instead(giveBack, func(b attempt, c call) answer {
		if b.state(c).Count < b.before(c).Count {
			return answer{}
		}
		return b.right(c)
	})
	forgetsNever = retrying(func(w window.Window) time.Duration {
		if w.RetryAfter == window.Never {
			return max(1, w.Left)
		}
		return w.RetryAfter
	})
)
