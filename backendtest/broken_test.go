package backendtest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

type algorithms []window.Algorithm

var (
	perKey     = algorithms{window.FixedWindow}
	bucket     = algorithms{window.TokenBucket}
	sliding    = algorithms{window.SlidingWindow}
	slidingLog = algorithms{window.SlidingLog}
	logs       = algorithms{window.SlidingWindow, window.SlidingLog}
	rolling    = algorithms{window.TokenBucket, window.SlidingWindow, window.SlidingLog}
	anyKind    = algorithms{window.FixedWindow, window.TokenBucket}
	each       = algorithms{window.FixedWindow, window.TokenBucket, window.SlidingWindow, window.SlidingLog}
)

// Subtests of the suite.
const (
	methods     = "a backend has all methods but those that it leaves out"
	checks      = "Check returns the error of every call"
	contexts    = "a call whose context has ended does nothing"
	closes      = "a call after Close fails with window.ErrClosed"
	independent = "keys and limits are independent"
	deletes     = "Reset ends a window, and Delete those of all limits"
	charges     = "Charge counts what is over the limit"
	peeks       = "Peek tells what a take would return"
	leftovers   = "concurrent calls of all methods leave nothing behind"
	anotherMax  = "another Max is another bound of the same count"
	allOrNone   = "takes of several limits are granted all or none"
	sums        = "several takes of one count are one of their sum"
	upToLimit   = "concurrent takes are granted up to the limit"
	held        = "concurrent takes and give-backs leave what is held"
	opposite    = "of takes in opposite order one is granted"
	backToOther = "nothing is given back to another window"
	model       = "random calls agree with a model"
	twoClients  = "random calls of two clients agree with a model"
	endings     = "windows that end under concurrent takes exceed no limit"
	ends        = "a window ends one scale after its start"
	counts      = "concurrent hits have counts of their own"
	vectors     = "vectors"
	ids         = "the ID of a window is that of no other"

	calendarVectors = "calendar: vectors"
	calendarEnds    = "calendar: a window ends where the next one starts"
	calendarCalls   = "calendar: all calls are of one window"

	retries   = "rolling: a caller who waits RetryAfter is admitted"
	intervals = "rolling: the limit holds in every interval"
	largest   = "rolling: numbers can be large"

	claims    = "in flight: a claim that is not valid, or has no context, does nothing"
	places    = "in flight: up to Max places are held"
	leases    = "in flight: a process that is silent for a lease holds nothing"
	late      = "in flight: a late claim does nothing, and a later one says the whole truth"
	believed  = "in flight: what the store does not know is believed as long as it fits"
	line      = "in flight: a process waits in line"
	lapse     = "in flight: a process that is silent loses its position in line"
	placeKeys = "in flight: keys and names are independent"
	placeList = "in flight: ListPlaces returns who holds places or waits"
	placesNow = "in flight: concurrent claims are granted up to Max"
	placeRand = "in flight: random claims agree with a model"
)

// most is the MaxCount of the backends in overMost.
const most = 1 << 40

// broken is a backend with a mistake, and the subtests that must fail with some algorithms. Others may fail, too.
type broken struct {
	name    string
	in      algorithms
	fails   []string
	mistake mistake
}

// overMost are backends with a largest count of most.
var overMost = []broken{
	{"limits over MaxCount are accepted", anyKind, []string{checks}, limit(func(l *window.Limit) {
		l.Max = min(l.Max, most)
		l.Burst = min(l.Burst, most)
	})},
	{"limits of hits over MaxCount are accepted", perKey, []string{checks}, instead("Hit", func(b *wrong, c call) answer {
		c.Limit.Max = min(c.Limit.Max, most)
		return b.right(c)
	})},
	{"limits of takes over MaxCount are accepted", anyKind, []string{checks}, instead("Take", func(b *wrong, c call) answer {
		c.Limit.Max = min(c.Limit.Max, most)
		return b.right(c)
	})},
	{"Check knows no largest Max", anyKind, []string{checks}, instead("Check", func(b *wrong, c call) answer {
		c.Limit.Max = min(c.Limit.Max, 5)
		return b.right(c)
	})},
	{"Set accepts counts over MaxCount", perKey, []string{charges}, instead("Set", func(b *wrong, c call) answer {
		c.N = min(c.N, most)
		return b.right(c)
	})},
	{"the error of a number does not match window.ErrRange", anyKind, []string{checks}, hiding(window.ErrRange)},
	{"Charge fails with window.ErrRange beyond the largest count", anyKind, []string{charges}, instead("Charge", func(b *wrong, c call) answer {
		if sum := b.state(c).Count + c.N; sum > most || c.Limit.Algorithm == window.TokenBucket && sum > 2*limits.Capacity(&c.Limit) {
			return answer{err: window.ErrRange}
		}
		return b.right(c)
	})},
}

// unbounded are backends that have no largest count.
var unbounded = []broken{
	{"the scales of a key share a window", anyKind, []string{independent}, limit(func(l *window.Limit) { l.Scale = cut(l.Scale) })},
	{"the scales of a key share a window", perKey, []string{model}, limit(func(l *window.Limit) { l.Scale = cut(l.Scale) })},
	{"the scales of a key share a window", rolling, []string{leftovers, vectors}, limit(func(l *window.Limit) { l.Scale = cut(l.Scale) })},
	{"the names of limits share a window", anyKind, []string{independent, allOrNone}, limit(func(l *window.Limit) { l.Name = "" })},
	{"the names of limits share a window", perKey, []string{model}, limit(func(l *window.Limit) { l.Name = "" })},
	{"fixed and aligned windows share a window", anyKind, []string{independent, allOrNone}, limit(func(l *window.Limit) {
		if l.Algorithm == window.AlignedWindow {
			l.Algorithm = window.FixedWindow
		}
	})},
	{"name and key are concatenated", anyKind, []string{independent}, changed(func(_ *wrong, c *call) {
		c.Key = c.Limit.Name + c.Key
		c.Limit.Name = ""
	})},
	{"key and name are concatenated, with a colon", anyKind, []string{independent}, changed(func(_ *wrong, c *call) {
		if c.Limit.Name != "" {
			c.Key += ":" + c.Limit.Name
			c.Limit.Name = ""
		}
	})},
	{"key and scale are concatenated", anyKind, []string{independent}, changed(func(_ *wrong, c *call) {
		c.Key += fmt.Sprint(c.Limit.Scale.Milliseconds())
		c.Limit.Scale = cut(c.Limit.Scale)
	})},
	{"scale and key are concatenated", anyKind, []string{independent}, changed(func(_ *wrong, c *call) {
		c.Key = fmt.Sprint(c.Limit.Scale.Milliseconds()) + c.Key
		c.Limit.Scale = cut(c.Limit.Scale)
	})},
	{"keys are cut at 255 bytes", anyKind, []string{independent}, keys(func(key string) string { return key[:min(len(key), 255)] })},
	{"keys are folded to lower case", anyKind, []string{independent}, keys(strings.ToLower)},
	{"keys are trimmed", anyKind, []string{independent}, keys(strings.TrimSpace)},
	{"keys are made valid UTF-8", anyKind, []string{independent}, keys(func(key string) string { return strings.ToValidUTF8(key, "?") })},
	{"with more than 20 windows, one is lost", perKey, []string{independent}, returned(func(b *wrong, c call, w *window.Window) {
		if counts := b.counts(); c.method == "Charge" && len(counts) > 20 {
			for lost := range counts {
				b.to(call{ctx: c.ctx, Take: lost}, "Reset", 0)
				break
			}
		}
	})},

	// Errors.
	{"the context is ignored", anyKind, []string{contexts}, func(b *wrong, c call) answer { return b.right(without(c)) }},
	{"the context is ignored", perKey, []string{claims}, func(b *wrong, c call) answer { return b.right(without(c)) }},
	{"the context is checked after the call", anyKind, []string{contexts}, func(b *wrong, c call) answer {
		a := b.right(without(c))
		if c.ctx.Err() != nil {
			a.err = c.ctx.Err()
		}
		return a
	}},
	{"the error does not match that of the context", anyKind, []string{contexts}, hiding(context.Canceled)},
	{"positive scales under 1 ms are accepted", anyKind, []string{checks}, limit(func(l *window.Limit) {
		if l.Scale > 0 {
			l.Scale = max(l.Scale, window.MinScale)
		}
	})},
	{"unknown algorithms are accepted", anyKind, []string{checks}, limit(func(l *window.Limit) {
		if l.Algorithm > 200 {
			l.Algorithm = window.FixedWindow
		}
	})},
	{"the error of a scale does not match window.ErrScale", anyKind, []string{checks}, hiding(window.ErrScale)},
	{"Delete accepts scales under 1 ms", anyKind, []string{checks}, instead("Delete", func(b *wrong, c call) answer {
		c.scales = slices.DeleteFunc(slices.Clone(c.scales), func(scale time.Duration) bool { return scale < window.MinScale })
		return b.right(c)
	})},
	{"calls after Close succeed", anyKind, []string{closes}, failing(func(_ call, err error) error { return unless(err, window.ErrClosed) })},
	{"Peek after Close succeeds", anyKind, []string{closes}, failing(func(c call, err error) error {
		if c.method == "Peek" {
			return unless(err, window.ErrClosed)
		}
		return err
	})},
	{"the error after Close does not match window.ErrClosed", anyKind, []string{closes}, hiding(window.ErrClosed)},
	{"TakeAll is that of Unimplemented", anyKind, []string{methods}, instead("TakeAll", func(*wrong, call) answer {
		return answer{err: window.ErrUnsupported}
	})},

	// Hits and charges.
	{"Charge counts only what fits", each, []string{charges}, chargesWhatFits},
	{"Charge counts only what fits", rolling, []string{vectors, model}, chargesWhatFits},
	{"counts wrap around", perKey, []string{charges}, instead("Charge", func(b *wrong, c call) answer {
		if sum := b.state(c).Count + c.N; sum > window.Unlimited {
			return b.to(c, "Set", sum%window.Unlimited)
		}
		return b.right(c)
	})},
	{"a bucket owes more than its burst", bucket, []string{charges, vectors, model}, instead("Charge", func(b *wrong, c call) answer {
		before := b.state(c).Count
		a := b.right(c)
		a.Count = max(a.Count, before+c.N)
		return a
	})},
	{"one hit in 1000 is not counted", perKey, []string{counts}, instead("Hit", func(b *wrong, c call) answer {
		if b.hits.Add(1)%1000 == 0 {
			return b.uncounted(c)
		}
		return b.right(c)
	})},
	{"hits are counted between reading and adding", perKey, []string{counts}, instead("Hit", func(b *wrong, c call) answer {
		if a := b.uncounted(c); b.pause() {
			return a // what others have counted is lost, or this is
		}
		return b.right(c)
	})},
	{"windows are opened between reading and opening", perKey, []string{counts}, instead("Hit", func(b *wrong, c call) answer {
		if b.state(c).Left == 0 {
			b.pause()
			return b.to(c, "Set", c.N)
		}
		return b.right(c)
	})},
	{"a hit that would be denied is not counted", perKey, []string{counts, vectors, model}, instead("Hit", func(b *wrong, c call) answer {
		if a := b.uncounted(c); a.Left > 0 && a.Count > c.Limit.Max {
			return a
		}
		return b.right(c)
	})},
	{"a hit on a full window is not counted", perKey, []string{counts, vectors}, instead("Hit", func(b *wrong, c call) answer {
		if w := b.state(c); w.Left > 0 && w.Count >= c.Limit.Max {
			return b.uncounted(c)
		}
		return b.right(c)
	})},
	{"a hit on a window over its limit clears the count", perKey, []string{counts, model}, instead("Hit", func(b *wrong, c call) answer {
		if w := b.state(c); w.Count > c.Limit.Max {
			b.clear(c)
		}
		return b.right(c)
	})},
	{"a hit of 0 opens no window", perKey, []string{ends, model}, instead("Hit", func(b *wrong, c call) answer {
		if c.N == 0 && b.state(c).Left == 0 {
			return answer{}
		}
		return b.right(c)
	})},
	{"a hit of 0 counts", rolling, []string{vectors}, instead("Hit", func(b *wrong, c call) answer {
		c.N = max(c.N, 1)
		return b.right(c)
	})},
	{"a hit moves the end of the window", perKey, []string{ends, vectors, model}, slides},
	{"a count moves the end of a window of the calendar", perKey, []string{calendarEnds}, returned(func(_ *wrong, _ call, w *window.Window) {
		*w = later(*w, -time.Duration(w.Count)*time.Millisecond)
	})},

	// Peek, Set, Reset and Delete.
	{"Peek takes", anyKind, []string{peeks}, peekTakes},
	{"Peek takes", rolling, []string{vectors}, peekTakes},
	{"Peek takes", perKey, []string{calendarCalls}, peekTakes},
	{"Peek returns no RetryAfter", rolling, []string{peeks, vectors}, returned(func(_ *wrong, c call, w *window.Window) {
		if c.method == "Peek" {
			w.RetryAfter = 0
		}
	})},
	{"Peek opens a window", perKey, []string{peeks, ends, model}, returned(func(b *wrong, c call, w *window.Window) {
		if c.method == "Peek" {
			b.to(c, "Hit", 0)
		}
	})},
	{"Peek returns a window that is over", perKey, []string{ends}, returned(func(b *wrong, c call, w *window.Window) {
		if was := b.before(c); c.method == "Peek" && w.Left == 0 && !was.ExpiresAt.After(b.now()) {
			*w = was
		}
	})},
	{"Set adds to the count", perKey, []string{vectors, model, calendarCalls}, setAdds},
	{"Set adds to the count", rolling, []string{vectors, model}, setAdds},
	{"Set keeps the end of the window", perKey, []string{model}, returned(func(b *wrong, c call, w *window.Window) {
		if was := b.before(c); c.method == "Set" && was.ExpiresAt.After(b.now()) {
			*w = later(*w, was.ExpiresAt.Sub(w.ExpiresAt))
		}
	})},
	{"Set opens no window", perKey, []string{model}, instead("Set", func(b *wrong, c call) answer {
		if b.state(c).Left == 0 {
			return answer{Window: window.Window{Count: c.N}}
		}
		return b.right(c)
	})},
	{"Set to 0 ends the window", perKey, []string{model}, instead("Set", func(b *wrong, c call) answer {
		if c.N == 0 {
			return b.to(c, "Reset", 0)
		}
		return b.right(c)
	})},
	{"Set to 0 does nothing", rolling, []string{vectors}, instead("Set", func(b *wrong, c call) answer {
		if c.N == 0 {
			return answer{}
		}
		return b.right(c)
	})},
	{"Reset does nothing", each, []string{deletes, model}, instead("Reset", func(b *wrong, c call) answer { return b.to(c, "Check", 0) })},
	{"Reset does nothing", rolling, []string{vectors}, instead("Reset", func(b *wrong, c call) answer { return b.to(c, "Check", 0) })},
	{"Reset does nothing", perKey, []string{calendarCalls}, instead("Reset", func(b *wrong, c call) answer { return b.to(c, "Check", 0) })},
	{"Reset ends the windows of all scales", anyKind, []string{deletes}, ending("Reset", func(window.Limit, window.Limit) bool { return true })},
	{"Reset ends the windows of all names", anyKind, []string{deletes}, ending("Reset", func(l, of window.Limit) bool {
		return l.Scale == of.Scale && l.Algorithm == of.Algorithm
	})},
	{"Reset ends the windows of all algorithms", anyKind, []string{deletes}, ending("Reset", func(l, of window.Limit) bool {
		return l.Scale == of.Scale && l.Name == of.Name
	})},
	{"Reset ends the windows of all start days", perKey, []string{deletes}, ending("Reset", func(l, of window.Limit) bool {
		return of.Calendar != 0 && l.Calendar == of.Calendar && l.Name == of.Name
	})},
	{"Reset clears the count and keeps the end", perKey, []string{deletes}, instead("Reset", func(b *wrong, c call) answer {
		b.clear(c)
		return answer{}
	})},
	{"Delete always returns 0", anyKind, []string{deletes}, instead("Delete", func(b *wrong, c call) answer { return answer{err: b.right(c).err} })},
	{"Delete ends the windows of all scales, whatever the scales", anyKind, []string{deletes}, deletesAll},
	{"Delete ends the windows of all scales, whatever the scales", perKey, []string{model}, deletesAll},
	{"Delete without scales does nothing", anyKind, []string{deletes}, sparing(func(c call, l window.Limit) bool { return len(c.scales) > 0 })},
	{"Delete without scales does nothing", perKey, []string{model}, sparing(func(c call, l window.Limit) bool { return len(c.scales) > 0 })},
	{"Delete ends only windows without a name", anyKind, []string{deletes}, sparing(func(_ call, l window.Limit) bool { return l.Name == "" })},
	{"Delete ends only windows without a name", perKey, []string{model}, sparing(func(_ call, l window.Limit) bool { return l.Name == "" })},
	{"Delete ends only fixed windows", anyKind, []string{deletes}, sparing(func(_ call, l window.Limit) bool { return l.Algorithm == window.FixedWindow })},
	{"Delete ends no windows of the calendar", perKey, []string{deletes}, sparing(func(_ call, l window.Limit) bool { return l.Calendar == 0 })},
	{"Delete ends the windows of keys with the same prefix", anyKind, []string{deletes}, instead("Delete", func(b *wrong, c call) (a answer) {
		for l := range b.Backend.List(c.ctx) {
			if strings.HasPrefix(l.Key, c.Key) {
				one := c
				one.Key = l.Key
				a.n += b.right(one).n
			}
		}
		return a
	})},
	{"Delete counts windows that are over", perKey, []string{deletes}, instead("Delete", func(b *wrong, c call) answer {
		a := b.right(c)
		for of, w := range b.counts() {
			if of.Key == c.Key && !w.ExpiresAt.After(b.now()) {
				a.n++
			}
		}
		return a
	})},

	// Takes.
	{"a take is granted if the limit is not reached", perKey, []string{model, endings}, takesTooMuch},
	{"a take is granted if the limit is not reached", rolling, []string{model}, takesTooMuch},
	{"a take up to the limit is refused", each, []string{upToLimit, model}, refusesLast},
	{"a take up to the limit is refused", rolling, []string{vectors}, refusesLast},
	{"one more than the limit is granted", rolling, []string{upToLimit, vectors, model, intervals}, holding(func(holds uint64) uint64 { return holds + 1 })},
	{"a bucket holds Max, whatever Burst is", bucket, []string{sums, vectors}, limit(func(l *window.Limit) {
		if l.Algorithm == window.TokenBucket {
			l.Burst = 0
		}
	})},
	{"takes are counted between reading and adding", each, []string{upToLimit}, takesSlowly},
	{"takes are counted between reading and adding", perKey, []string{opposite, held, endings}, takesSlowly},
	{"a take that is refused counts", each, []string{allOrNone, upToLimit, model}, refusalCounts},
	{"a take that is refused counts", perKey, []string{held}, refusalCounts},
	{"a take that is refused counts", logs, []string{held, vectors}, refusalCounts},
	{"a take that is refused counts what is left", perKey, []string{model}, refused(func(b *wrong, c call, w *window.Window) {
		if w.Left > 0 && w.Count < c.Limit.Max {
			b.to(c, "Charge", c.Limit.Max-w.Count)
		}
	})},
	{"a take that is refused opens a window", perKey, []string{allOrNone, model}, refused(func(b *wrong, c call, _ *window.Window) { b.to(c, "Hit", 0) })},
	{"a hit that is refused forgets what was counted", rolling, []string{model}, refused(func(b *wrong, c call, _ *window.Window) { b.to(c, "Reset", 0) })},
	{"Refused is not set", each, []string{allOrNone}, refused(func(_ *wrong, _ call, w *window.Window) { w.Refused = false })},
	{"Refused is not set", rolling, []string{vectors}, refused(func(_ *wrong, _ call, w *window.Window) { w.Refused = false })},
	{"several takes open the windows before the refused one", perKey, []string{allOrNone, model}, takes(func(b *wrong, all []call, windows []window.Window) bool {
		for _, c := range all {
			if b.to(c, "Peek", c.N).Refused {
				break
			}
			b.to(c, "Hit", 0)
		}
		return b.takeAll(all, windows)
	})},
	{"several takes up to the refused one count", each, []string{allOrNone}, keepsFirst},
	{"several takes up to the refused one count", perKey, []string{model, held}, keepsFirst},
	{"several takes are made one by one, and given back if one is refused", each, []string{opposite}, takes(func(b *wrong, all []call, windows []window.Window) bool {
		for i, c := range all {
			if windows[i] = b.to(c, "Take", c.N).Window; windows[i].Refused {
				for j, c := range all[:i] {
					c.id = windows[j].ID
					b.to(c, "GiveBack", c.N)
				}
				return false
			}
			b.pause()
		}
		return true
	})},
	{"several takes of one count are checked one by one", each, []string{sums}, checksEach},
	{"several takes of one count are checked one by one", perKey, []string{model}, checksEach},
	{"the sum of several takes is checked under the limit of each", each, []string{sums}, takes(func(b *wrong, all []call, windows []window.Window) bool {
		granted := b.takeAll(all, windows)
		for i, c := range all {
			if !granted && len(all) > 1 {
				windows[i] = b.to(c, "Peek", c.N).Window
			}
		}
		return granted
	})},
	{"numbers are those of 32 bits", rolling[:2], []string{vectors}, takes(func(b *wrong, all []call, windows []window.Window) bool {
		if c := all[0]; uint32(b.state(c).Count+c.N) <= uint32(limits.Capacity(&c.Limit)) {
			return b.charge(all, windows)
		}
		return b.takeAll(all, windows)
	})},
	{"the sum of count and n wraps around", rolling, []string{largest}, wrapsSums},
	{"the sum of count and n wraps around", rolling[:2], []string{vectors}, wrapsSums},

	// Give-backs and IDs.
	{"GiveBack gives nothing back", rolling, []string{vectors}, givesNothingBack},
	{"GiveBack gives nothing back", perKey, []string{model, calendarCalls, held}, givesNothingBack},
	{"GiveBack gives nothing back", logs, []string{held}, givesNothingBack},
	{"GiveBack gives back twice", each, []string{held, model}, givesBackTwice},
	{"GiveBack gives back twice", rolling, []string{vectors}, givesBackTwice},
	{"GiveBack gives back twice", bucket, []string{intervals}, givesBackTwice},
	{"GiveBack gives back twice", perKey, []string{endings}, givesBackTwice},
	{"GiveBack ignores the ID", each, []string{backToOther}, givesBackToAny},
	{"GiveBack ignores the ID", perKey, []string{model, calendarCalls, endings}, givesBackToAny},
	{"GiveBack ignores the ID", algorithms{window.TokenBucket, window.SlidingLog}, []string{vectors}, givesBackToAny},
	{"GiveBack subtracts between reading and writing", algorithms{window.FixedWindow, window.SlidingWindow, window.SlidingLog}, []string{held}, instead("GiveBack", func(b *wrong, c call) answer {
		if b.pause() {
			return answer{ok: true} // what others have counted is lost, or this is
		}
		return b.right(c)
	})},
	{"GiveBack returns false", perKey, []string{model}, instead("GiveBack", func(b *wrong, c call) answer { return answer{err: b.right(c).err} })},
	{"GiveBack returns false", rolling, []string{vectors}, instead("GiveBack", func(b *wrong, c call) answer { return answer{err: b.right(c).err} })},
	{"GiveBack gives back what has come back by itself", bucket, []string{vectors, intervals}, instead("GiveBack", func(b *wrong, c call) answer {
		before := b.state(c).Count
		a := b.right(c)
		if rest := b.state(c).Count; a.ok && rest+c.N > before {
			b.to(c, "Set", before-min(before, c.N))
		}
		return a
	})},
	{"a window of which all is given back ends", perKey, []string{model}, instead("GiveBack", func(b *wrong, c call) answer {
		a := b.right(c)
		if a.ok && b.state(c).Count == 0 {
			b.to(c, "Reset", 0)
		}
		return a
	})},
	{"the ID is the end", perKey, []string{ids}, returned(func(_ *wrong, _ call, w *window.Window) { w.ID = w.ExpiresAt.UnixNano() })},
	{"a hit changes the ID", perKey, []string{ids}, returned(func(b *wrong, c call, w *window.Window) {
		if c.method == "Hit" {
			w.ID += b.hits.Add(1)
		}
	})},
	{"a count that another client has lowered is taken for another window", perKey, []string{twoClients}, losesOfTwo},
	{"a count that another client has lowered is taken for another window", slidingLog, []string{twoClients}, losesOfTwo},
	{"a client that has found a window full refuses until its end", each, []string{twoClients}, takes(func(b *wrong, all []call, windows []window.Window) bool {
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
	{"a window is active at its end", perKey, []string{ends, vectors, model}, lasting(1, 1)},
	{"a window ends a millisecond early", perKey, []string{ends, vectors}, lasting(-time.Millisecond, 0)},
	{"a window ends a millisecond before its ExpiresAt", perKey, []string{ends, model}, lasting(-time.Millisecond, -time.Millisecond)},
	{"windows are those of the other algorithm", perKey, []string{ends}, limit(func(l *window.Limit) {
		if l.Algorithm <= window.AlignedWindow && l.Algorithm > 0 {
			l.Algorithm = window.FixedWindow + window.AlignedWindow - l.Algorithm
		}
	})},
	{"ExpiresAt is late", perKey, []string{ends, calendarVectors}, returned(func(_ *wrong, _ call, w *window.Window) { *w = later(*w, time.Millisecond) })},
	{"ExpiresAt is late", rolling, []string{vectors, model}, returned(func(_ *wrong, _ call, w *window.Window) { *w = later(*w, 1) })},
	{"ExpiresAt is zero", perKey, []string{ends}, returned(func(_ *wrong, _ call, w *window.Window) { w.ExpiresAt = time.Time{} })},
	{"Left is always a scale", perKey, []string{ends}, returned(func(_ *wrong, c call, w *window.Window) { w.Left = c.Limit.Scale })},
	{"counts are rounded down", bucket, []string{vectors, model}, returned(func(_ *wrong, c call, w *window.Window) {
		w.Count = uint64(float64(w.Left) / float64(c.Limit.Scale) * float64(c.Limit.Max) * (1 + 1e-12))
	})},
	{"hits of one time are one too many", sliding, []string{vectors, model}, returned(func(b *wrong, c call, w *window.Window) { w.Count -= min(w.Count, 1) })},
	{"nothing comes back before a scale without hits", sliding, []string{vectors}, slides},
	{"the limit is that of aligned windows", logs, []string{vectors, model, intervals}, limit(func(l *window.Limit) {
		if l.Algorithm.Rolling() {
			l.Algorithm = window.AlignedWindow
		}
	})},
	{"a token takes a whole number of nanoseconds", bucket, []string{vectors}, limit(func(l *window.Limit) {
		if n := time.Duration(max(1, l.Max)); l.Algorithm == window.TokenBucket && n < l.Scale {
			l.Scale = (l.Scale + n - 1) / n * n
		}
	})},
	{"a bucket holds more tokens after a long time", bucket, []string{vectors}, changed(func(b *wrong, c *call) {
		if was := b.before(*c); c.Limit.Algorithm == window.TokenBucket && !was.ExpiresAt.IsZero() && b.now().Sub(was.ExpiresAt) > c.Limit.Scale {
			c.Limit.Burst = 2 * limits.Capacity(&c.Limit)
		}
	})},
	{"with another limit, nothing is counted", rolling, []string{vectors}, changed(func(b *wrong, c *call) {
		if b.another(*c) {
			b.to(*c, "Reset", 0)
		}
	})},
	{"with another limit, the time until the bucket is full stays", bucket, []string{vectors, anotherMax}, changed(func(b *wrong, c *call) {
		if was := b.before(*c); b.another(*c) {
			b.to(*c, "Set", uint64(was.ExpiresAt.Sub(b.now())/(c.Limit.Scale/time.Duration(max(1, c.Limit.Max)))))
		}
	})},

	// RetryAfter.
	{"RetryAfter of a take over the limit is Left", anyKind, []string{peeks, allOrNone}, forgetsNever},
	{"RetryAfter of a take over the limit is Left", rolling, []string{vectors, model}, forgetsNever},
	{"RetryAfter is a nanosecond short", rolling, []string{vectors, retries}, retrying(func(w window.Window) time.Duration { return max(1, w.RetryAfter-1) })},
	{"RetryAfter is a millisecond long", rolling, []string{vectors, retries}, retrying(func(w window.Window) time.Duration { return w.RetryAfter + time.Millisecond })},
	{"RetryAfter is Left", rolling, []string{vectors}, retrying(func(w window.Window) time.Duration { return max(1, w.Left) })},
	{"RetryAfter is Left", bucket, []string{retries}, retrying(func(w window.Window) time.Duration { return max(1, w.Left) })},
	{"RetryAfter is 0", rolling, []string{vectors}, retrying(func(window.Window) time.Duration { return 0 })},
	{"RetryAfter is that of a hit of 1", rolling, []string{vectors, retries}, returned(func(b *wrong, c call, w *window.Window) {
		if one := b.to(c, "Peek", 1).Window; w.Refused && one.Refused {
			w.RetryAfter = one.RetryAfter
		}
	})},
	{"RetryAfter of a hit of 0 is 0", rolling, []string{vectors}, returned(func(_ *wrong, c call, w *window.Window) {
		if c.N == 0 {
			w.RetryAfter = 0
		}
	})},
	{"hits are granted a nanosecond early", rolling, []string{vectors, retries}, takes(func(b *wrong, all []call, windows []window.Window) bool {
		if !b.fit(all[:1], windows) && windows[0].RetryAfter == 1 {
			return b.charge(all[:1], windows)
		}
		return b.takeAll(all, windows)
	})},

	// Calendars.
	{"the days, weeks, months and years of a key share a window", perKey, []string{independent, allOrNone}, limit(func(l *window.Limit) {
		l.Calendar = min(l.Calendar, window.Day)
		l.StartDay = 0
	})},
	{"windows are those of UTC", perKey, []string{independent, calendarVectors, calendarEnds}, limit(func(l *window.Limit) { l.Zone = "" })},
	{"windows start on the first day", perKey, []string{independent, calendarVectors, calendarCalls}, limit(func(l *window.Limit) { l.StartDay = 0 })},
	{"UTC has two counts, by how it is written", perKey, []string{sums}, limit(func(l *window.Limit) {
		if l.Zone == "UTC" {
			l.Zone = "Etc/UTC"
		}
	})},
	{"a day has 24 hours, a month 30 days", perKey, []string{calendarVectors, calendarEnds}, ofLength(window.AlignedWindow)},
	{"a window of a day opens with a hit and lasts a day", perKey, []string{calendarVectors, calendarCalls}, ofLength(window.FixedWindow)},

	// Places in flight.
	{"claims are not checked", perKey, []string{claims}, instead("Exchange", func(b *wrong, c call) answer { return answer{err: unless(b.right(c).err, window.ErrRange)} })},
	{"a place more than Max is granted", perKey, []string{places, placeRand}, wanting(func(w *window.Want, _ uint64) { w.Max++ })},
	{"places are granted between reading and adding", perKey, []string{placesNow}, wanting(func(w *window.Want, held uint64) {
		if held+w.N <= w.Max {
			time.Sleep(100 * time.Microsecond)
			w.Max = window.MaxPlaces
		}
	})},
	{"places have no lease", perKey, []string{leases, placeRand, placeList}, claiming(func(_ *wrong, c *window.Claim, _ uint64) { c.Lease = window.MaxLease })},
	{"places come back a little early", perKey, []string{leases}, claiming(func(_ *wrong, c *window.Claim, _ uint64) { c.Lease -= c.Lease / 50 })},
	{"late claims are made", perKey, []string{late, placeRand}, claiming(func(b *wrong, c *window.Claim, _ uint64) { c.Seq = uint64(b.hits.Add(1)) })},
	{"what a process holds is added up", perKey, []string{places, late}, claiming(func(_ *wrong, c *window.Claim, held uint64) { c.Held += held })},
	{"what the store does not know is always believed", perKey, []string{believed, placeRand}, claiming(func(_ *wrong, c *window.Claim, _ uint64) { c.Strict = false })},
	{"what the store does not know is always lost", perKey, []string{believed, placeRand}, claiming(func(_ *wrong, c *window.Claim, _ uint64) {
		c.Strict = true
		c.HeldMax = 0
	})},
	{"what is held over the Max is lost", perKey, []string{places}, claiming(func(_ *wrong, c *window.Claim, held uint64) {
		if held > c.HeldMax {
			c.Held = 0
		}
	})},
	{"nobody waits in line", perKey, []string{line, lapse, placeRand}, wanting(func(w *window.Want, _ uint64) { w.Wait = false })},
	{"nobody leaves room for the first in line", perKey, []string{line, placeRand}, wanting(func(w *window.Want, held uint64) {
		if held+w.N <= w.Max {
			w.Max = window.MaxPlaces
		}
	})},
	{"a process that is silent keeps its position in line", perKey, []string{line, lapse, placeRand}, claiming(func(_ *wrong, c *window.Claim, _ uint64) { c.Lease *= 2 })},
	{"a want overtakes one of its process that waits", perKey, []string{line, placeRand}, claiming(func(_ *wrong, c *window.Claim, _ uint64) {
		slices.SortStableFunc(c.Wants, func(a, b window.Want) int { return int(a.N) - int(b.N) })
	})},
	{"the places of key and name are those of both together", perKey, []string{placeKeys}, claiming(func(_ *wrong, c *window.Claim, _ uint64) {
		c.Key = c.Name + c.Key
		c.Name = ""
	})},
	{"the places of all names are those of the key", perKey, []string{placeKeys}, claiming(func(_ *wrong, c *window.Claim, _ uint64) { c.Name = "" })},
	{"the places of keys are those of a part of them", perKey, []string{placeKeys}, claiming(func(_ *wrong, c *window.Claim, _ uint64) { c.Key = c.Key[:min(len(c.Key), 255)] })},
	{"tokens do not grow", perKey, []string{places, placeRand}, placing(func(p *window.Places) {
		for i, t := range p.Tokens {
			p.Tokens[i] = min(t, 2)
		}
	})},
	{"only the first of several claims is made", perKey, []string{placeKeys}, instead("Exchange", func(b *wrong, c call) answer {
		c.claims, c.places = c.claims[:1], c.places[:1]
		return b.right(c)
	})},
	{"places count as hits", perKey, []string{placeKeys}, claiming(func(b *wrong, c *window.Claim, _ uint64) {
		b.Backend.Charge(context.Background(), c.Key, window.Limit{Max: 1, Scale: time.Minute, Algorithm: window.FixedWindow}, 1)
	})},
	{"it is not known when places come back", perKey, []string{leases}, placing(func(p *window.Places) { p.Next = 0 })},
	{"places of all keys are listed", perKey, []string{placeList}, instead("ListPlaces", func(b *wrong, c call) answer {
		c.keys = nil
		return b.right(c)
	})},
	{"places are listed without who holds them", perKey, []string{placeList}, instead("ListPlaces", func(b *wrong, c call) answer {
		a := b.right(c)
		for i := range a.listed {
			a.listed[i].ByProcess = nil
		}
		return a
	})},
	{"places of one limit are listed", perKey, []string{placeList}, instead("ListPlaces", func(b *wrong, c call) answer {
		a := b.right(c)
		a.listed = a.listed[:min(len(a.listed), 1)]
		return a
	})},
	{"the context of a list is ignored", perKey, []string{placeList}, instead("ListPlaces", func(b *wrong, c call) answer { return b.right(without(c)) })},
}

// Mistakes that several rows have.
var (
	chargesWhatFits = instead("Charge", func(b *wrong, c call) answer {
		holds := limits.Capacity(&c.Limit)
		c.N = min(c.N, holds-min(holds, b.state(c).Count))
		return b.right(c)
	})
	slides = returned(func(b *wrong, c call, w *window.Window) {
		if c.method == "Hit" && w.Left > 0 && !w.Refused {
			*w = b.to(c, "Set", w.Count).Window
		}
	})
	peekTakes = instead("Peek", func(b *wrong, c call) answer {
		a := b.right(c)
		if !a.Refused && a.err == nil {
			b.to(c, "Take", c.N)
		}
		return a
	})
	setAdds = instead("Set", func(b *wrong, c call) answer {
		c.N += b.state(c).Count
		return b.right(c)
	})
	deletesAll = instead("Delete", func(b *wrong, c call) answer {
		c.scales = nil
		return b.right(c)
	})
	takesTooMuch = takes(func(b *wrong, all []call, windows []window.Window) bool {
		if c := all[0]; len(all) == 1 && c.N <= limits.Capacity(&c.Limit) && b.state(c).Count < limits.Capacity(&c.Limit) {
			return b.charge(all, windows)
		}
		return b.takeAll(all, windows)
	})
	refusesLast = holding(func(holds uint64) uint64 { return holds - min(holds, 1) })
	takesSlowly = takes(func(b *wrong, all []call, windows []window.Window) bool {
		if !b.fit(all, windows) {
			return false
		}
		b.pause()
		return b.charge(all, windows)
	})
	refusalCounts = refused(func(b *wrong, c call, _ *window.Window) { b.to(c, "Charge", c.N) })
	keepsFirst    = takes(func(b *wrong, all []call, windows []window.Window) bool {
		for i, c := range all {
			if windows[i] = b.to(c, "Take", c.N).Window; windows[i].Refused {
				return false
			}
		}
		return true
	})
	checksEach = takes(func(b *wrong, all []call, windows []window.Window) bool {
		return b.fit(all, windows) && b.charge(all, windows)
	})
	wrapsSums = takes(func(b *wrong, all []call, windows []window.Window) bool {
		if c := all[0]; int64(b.state(c).Count+c.N) < 0 {
			return b.charge(all, windows)
		}
		return b.takeAll(all, windows)
	})
	givesNothingBack = instead("GiveBack", func(b *wrong, c call) answer {
		c.N = 0
		return b.right(c)
	})
	givesBackTwice = instead("GiveBack", func(b *wrong, c call) answer {
		b.right(c)
		return b.right(c)
	})
	givesBackToAny = instead("GiveBack", func(b *wrong, c call) answer {
		if was := b.before(c); was.ID != 0 {
			c.id = was.ID
		}
		return b.right(c)
	})
	losesOfTwo = instead("GiveBack", func(b *wrong, c call) answer {
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
