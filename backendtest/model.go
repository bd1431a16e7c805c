package backendtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// The model makes all calls that the backend makes, one by one, by the algorithms of package memory. Where a backend
// is free, the model does what the backend did.

// identityOf returns what tells counts apart: the take without Max, Burst and N.
func identityOf(t *window.Take) window.Take { return limits.Identity(&t.Limit).For(t.Key, 0) }

// record returns the record of a take.
func (s *suite) record(t *window.Take) *record {
	id := identityOf(t)
	if s.counts[id] == nil {
		s.counts[id] = &record{ids: map[clientID]int64{}}
	}
	return s.counts[id]
}

// made is a call that the backend has made.
type made struct {
	call
	answer
	before, now int64 // when it began, and ended
}

// do makes a call, and compares the answer with that of the model, unless the test has failed before.
func (s *suite) do(c call) answer {
	s.Helper()
	m := made{call: c, before: s.now()}
	m.answer = s.try(c)
	m.now = s.now()
	if s.Failed() {
		return m.answer // what counts is not known: a call that fails may have been counted
	}
	switch c.method {
	case takeAll:
		s.takesAll(m)
	case deleteAll:
		s.deletes(m)
	case exchange:
		s.exchanges(m)
	case list:
		s.lists(m)
	case listPlaces:
		s.listsPlaces(m)
	case giveBack:
		s.givesBack(m)
		s.record(&c.Take).remember(m)
	case reset:
		s.record(&c.Take).End()
		s.record(&c.Take).remember(m)
	default:
		at := s.when(m, &m.Take, m.Window)
		s.compare(m, &m.Take, m.Window, s.want(m, at))
	}
	return m.answer
}

// when returns the time at which a call was made, which may have waited: if it has opened a window, the end tells when,
// and if that was open before, it is when the call began.
func (s *suite) when(m made, t *window.Take, got window.Window) int64 {
	opened := got.ExpiresAt.Add(-t.Limit.Scale).UnixNano()
	switch {
	case got.ExpiresAt.IsZero() || opened < m.before:
		return m.before
	case opened < m.now && s.record(t).window(&t.Limit, m.before).Left == 0:
		return opened
	}
	return m.now
}

// want makes a call of one count in the model, and returns its window.
func (s *suite) want(m made, at int64) window.Window {
	r := s.record(&m.Take)
	l, n := &m.Limit, m.N
	switch {
	case m.method == peek:
		return r.peek(l, n, at)
	case m.method == set:
		return r.call(algorithm.Set, l, n, at)
	case m.method == charge:
		most := cmp.Or(s.traits(*l).MaxCount, window.Unlimited)
		return r.call(algorithm.Charge, l, min(n, most-min(most, r.window(l, at).Count)), at)
	case m.method == hit && !l.Algorithm.Rolling():
		return s.wantOfHit(m, at)
	}
	w := r.call(algorithm.Take, l, n, at)
	if w.Refused && s.MayLose && s.clients > 1 {
		s.adopt(m, &m.Take)
		w = m.Window
		w.ID = r.ID
	}
	return w
}

// wantOfHit makes a hit of a fixed window. If the backend SkipsDenied, one that is over the limit may be refused, or
// not counted.
func (s *suite) wantOfHit(m made, at int64) window.Window {
	r := s.record(&m.Take)
	w := r.window(&m.Limit, at)
	denied := s.SkipsDenied && w.Count+m.N > m.Limit.Max
	switch {
	case denied && m.Refused:
		w.Refused = true
		w.RetryAfter = cmp.Or(m.RetryAfter, w.Left)
	case denied && w.Count > m.Limit.Max && m.Count == w.Count:
	default:
		return r.call(algorithm.Hit, &m.Limit, m.N, at)
	}
	return w
}

// takesAll makes takes of several counts in the model: all or none.
func (s *suite) takesAll(m made) {
	s.Helper()
	sums, of := limits.Merge(m.takes)
	for len(of) < len(sums) {
		of = append(of, len(of)) // there is nothing to merge
	}
	granted := true
	wants := make([]window.Window, len(sums))
	at := make([]int64, len(sums))
	for i := range sums {
		t := &sums[i]
		at[i] = s.when(m, t, m.windows[slices.Index(of, i)])
		wants[i] = s.record(t).peek(&t.Limit, t.N, at[i])
		granted = granted && !wants[i].Refused
	}
	if m.ok != granted {
		s.wrong(m, &sums[0], fmt.Sprintf("granted is %v, want %v", m.ok, granted))
		return
	}
	for i := range sums {
		if t := &sums[i]; granted {
			wants[i] = s.record(t).call(algorithm.Take, &t.Limit, t.N, at[i])
		}
	}
	for i, sum := range of {
		if !granted && s.SkipsDenied && s.clients > 1 {
			s.adopt(m, &sums[sum])
		} else {
			s.compare(m, &sums[sum], m.windows[i], wants[sum])
		}
	}
}

// adopt makes the model agree with what a take that was refused may leave behind, if a store has two clients: one that
// does not know what the other has taken may take, be refused, and give back. If that is lost, as the backend MayLose,
// the count is larger. The answer of the take may be what its client knew before, so a Peek is compared in its place.
func (s *suite) adopt(m made, t *window.Take) {
	s.Helper()
	look := made{call: call{method: peek, client: m.client, Take: t.Limit.For(t.Key, 0)}, before: m.before}
	look.answer = s.try(look.call)
	look.now = s.now()
	r := s.record(t)
	if look.Left > 0 && s.MayLose && look.Count-r.Count <= t.N {
		r.Count = look.Count
	}
	s.compare(look, &look.Take, look.Window, r.window(&t.Limit, look.now))
}

// deletes ends the windows of a key in the model. It may count those that have ended meanwhile, or no longer ago than
// Precision.
func (s *suite) deletes(m made) {
	s.Helper()
	least, most := 0, 0
	for id, r := range s.counts {
		if id.Key != m.Key || len(m.scales) > 0 &&
			(id.Limit.Calendar != 0 || !slices.Contains(m.scales, id.Limit.Scale)) {
			continue
		}
		if left := r.left(&id.Limit, m.before); left > 0 || left < 0 && -left < s.traits(id.Limit).Precision {
			most++
		}
		if r.left(&id.Limit, m.now) > 0 {
			least++
		}
		r.End()
	}
	if m.deleted < least || m.deleted > most {
		s.wrong(m, &m.Take, fmt.Sprintf("it has ended %d windows, want %d", m.deleted, least))
	}
}

// lists compares what List returns with the model. Each count is once in it, if it is of some keys, and looks as Peek
// describes it. What has ended is not there, and nothing else is missing. What has a digest in place of its key is not
// compared.
func (s *suite) lists(m made) {
	s.Helper()
	digests, listed := 0, map[window.Take]bool{}
	for _, l := range m.counts {
		if l.Digest {
			digests++
			continue
		}
		m.Take = l.Limit.For(l.Key, 0)
		id := identityOf(&m.Take)
		r := s.counts[id]
		if r == nil || !m.lists(id.Key) || l.Window.Left <= 0 || listed[id] && len(m.keys) > 0 {
			s.Errorf("%v returns %+v, which is not counted, has ended, or was there before", m.call, l)
			continue
		}
		listed[id] = true
		s.compare(m, &m.Take, l.Window, r.window(&l.Limit, m.now))
	}
	var missing []string
	for id, r := range s.counts {
		if m.lists(id.Key) && !listed[id] && r.window(&id.Limit, m.now).Left > 0 {
			missing = append(missing, fmt.Sprintf("%.40q, %v", id.Key, id.Limit))
		}
	}
	s.expect(len(missing) == digests, "%v returns %d digests of keys, and not %q", m.call, digests, missing)
}

// lists reports whether a call lists a key.
func (c call) lists(key string) bool { return len(c.keys) == 0 || slices.Contains(c.keys, key) }

// givesBack gives back in the model. If the backend MayLose, it may return false, and give nothing back.
func (s *suite) givesBack(m made) {
	s.Helper()
	if !m.ok && s.MayLose {
		return
	}
	r := s.record(&m.Take)
	by := algorithm.RuleOf(&m.Limit)
	if want := by.GiveBack(&r.Record, at(m.now), r.ids[clientID{m.client, m.id}], m.N); m.ok != want {
		s.wrong(m, &m.Take, fmt.Sprintf("it returns %v, want %v", m.ok, want))
	}
}

// compare compares the window that a call has returned with that of the model.
func (s *suite) compare(m made, t *window.Take, got, want window.Window) {
	s.Helper()
	r, precision := s.record(t), s.traits(t.Limit).Precision
	r.remember(m)
	var wrong []string
	differs := func(field string, got, want any) {
		if want == window.Never {
			want = "window.Never"
		}
		wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", field, got, want))
	}
	late := func(field string, got, want time.Duration) {
		if got < want || got > want && (want == window.Never || want == 0 || got-want > precision) {
			differs(field, got, want)
		}
	}
	if got.Count != want.Count && (got.Count < window.Unlimited || want.Count < window.Unlimited) {
		differs("Count", got.Count, want.Count)
	}
	if m.method != peek || t.N > 0 {
		if got.Refused != want.Refused {
			differs("Refused", got.Refused, want.Refused)
		}
		if want.RetryAfter > 0 {
			late("RetryAfter", cmp.Or(got.RetryAfter, got.Left), want.RetryAfter)
		}
	}
	if m.before == m.now { // otherwise they are of different times
		late("Left", got.Left, want.Left)
		if end := time.Unix(0, m.now).Add(got.Left); got.Left > 0 && !got.ExpiresAt.Equal(end) || got.Left <= 0 &&
			!got.ExpiresAt.IsZero() {
			differs("ExpiresAt", got.ExpiresAt,
				fmt.Sprintf("the time, which is %v, and Left, %v", time.Unix(0, m.now).UTC(), got.Left))
		}
	}
	if id := (clientID{m.client, got.ID}); t.Limit.Algorithm.Rolling() {
		if _, known := r.ids[id]; !known || !got.Refused && slices.Contains([]method{hit, take, takeAll}, m.method) {
			r.ids[id] = want.ID
		}
	} else if m.method != peek && m.method != list {
		if why := s.identify(m, r, got, want); why != "" {
			wrong = append(wrong, why)
		}
	}
	if len(wrong) > 0 {
		s.wrong(m, t, strings.Join(wrong, "; "))
	}
}

// identify returns what is wrong with the ID of a fixed window. A backend that MayLose may give it another one.
func (s *suite) identify(m made, r *record, got, want window.Window) string {
	id := clientID{m.client, got.ID}
	was, known := r.ids[id]
	switch {
	case want.Left == 0 && got.ID != 0:
		return fmt.Sprintf("ID is %d, and there is no window", got.ID)
	case want.Left == 0:
		return ""
	case got.ID == 0:
		return "ID is 0"
	case known && was != want.ID:
		return fmt.Sprintf("ID is %d, which is that of an earlier window", got.ID)
	case !known && !s.MayLose:
		for other, is := range r.ids {
			if other.client == m.client && is == want.ID {
				return fmt.Sprintf("ID is %d, and was %d when the window opened", got.ID, other.id)
			}
		}
	}
	r.ids[id] = want.ID
	return ""
}

// remember keeps a call for the texts of failures.
func (r *record) remember(m made) {
	const last = 6
	r.calls = append(r.calls, m)
	r.calls = r.calls[max(0, len(r.calls)-last):]
}

// wrong fails the test: with the call, what is wrong, and what was called before.
func (s *suite) wrong(m made, t *window.Take, what string) {
	s.Helper()
	text := fmt.Sprintf("%v: %s\nThe last calls of this count:", m.call, what)
	for _, before := range s.record(t).calls {
		ago := time.Duration(m.now - before.now)
		text += fmt.Sprintf("\n\t%v before: %v returned %v", ago, before.call, before.answer)
	}
	s.Error(text)
}
