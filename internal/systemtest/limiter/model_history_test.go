package limiter_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// clock is how instants are printed.
const clock = "04:05.000000000"

// history is what a server has done to windows' records, in order, and so what the
// answers of all clients must be consistent with.
type history[T codec.Value] struct {
	mu   sync.Mutex
	past map[modelKey]*past
}

// past is the history of one key and scale.
type past struct {
	// resets says that windows are Set and Reset. The next one then has the name of one
	// that some clients still know. What they add to it as it ends can count there and, once
	// more, in the next.
	resets  bool
	records []*record
	places  map[uint64][]time.Time // when each place in the count was given
	states  []state
	ended   []time.Time // when a window was removed that was not over
	faults  []string    // what must not be, whatever clients were told
}

// record is a window's record, from its INSERT until it is removed or its window is over.
type record struct {
	name       string
	start, end time.Time
	count      uint64
	most       uint64
	gone       time.Time // zero while it is there
}

// state is the window from an instant on.
type state struct {
	at     time.Time
	record *record // nil if there is none
	count  uint64
}

func (r *record) String() string {
	s := fmt.Sprintf("%s of %v, %d in the end", r.name, r.start.Format(clock), r.most)
	if !r.gone.IsZero() {
		s += ", removed at " + r.gone.Format(clock)
	}
	return s
}

func (r *record) live(at time.Time) bool { return r.gone.IsZero() && at.Before(r.end) }

// window returns the oldest live record.
func (p *past) window(at time.Time) *record {
	for _, r := range p.records {
		if r.live(at) {
			return r
		}
	}
	return nil
}

func (h *history[T]) observe(e mockserver.Exec) {
	part := strings.SplitN(e.Key, ":", 4) // rl:scale:bucket:key
	if len(part) != 4 || !e.Status || e.Op == codec.OpQuery {
		return
	}
	scale, err := time.ParseDuration(part[1])
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := modelKey{part[3], scale}
	p := h.past[k]
	if p == nil {
		p = &past{resets: k.key == modelResetKey, places: map[uint64][]time.Time{}}
		h.past[k] = p
	}
	before := p.window(e.Time)
	switch r := e.Request.(type) {
	case codec.Insert[T]:
		p.insert(&record{name: e.Key, start: e.Time, end: e.Time.Add(scale), count: e.Quota, most: e.Quota}, before)
	case codec.Update[T]:
		p.increase(e, uint64(r.Value), before)
	case codec.Purge:
		p.purge(e, before)
	}
	p.note(e.Time)
}

func (p *past) note(at time.Time) {
	s := state{at: at, record: p.window(at)}
	if s.record != nil {
		s.count = s.record.count
	}
	p.states = append(p.states, s)
}

func (p *past) find(name string) *record {
	for _, r := range slices.Backward(p.records) {
		if r.name == name && r.gone.IsZero() {
			return r
		}
	}
	return nil
}

func (p *past) insert(r, before *record) {
	p.records = append(p.records, r)
	if before == nil && r.count <= modelMostIncrement { // a Set begins with more, or with 0
		p.give(r.start, 0, r.count)
	}
}

func (p *past) increase(e mockserver.Exec, n uint64, window *record) {
	r := p.find(e.Key)
	if r == nil {
		return // a name of another run
	}
	r.count += n
	r.most = r.count
	if e.Quota != r.count {
		p.faults = append(p.faults, fmt.Sprintf("%s has wrapped to %d at %v", e.Key, e.Quota, e.Time))
	}
	if r == window {
		p.give(e.Time, r.count-n, r.count)
	}
}

func (p *past) give(at time.Time, from, to uint64) {
	for place := from + 1; place <= to; place++ {
		p.places[place] = append(p.places[place], at)
	}
}

func (p *past) purge(e mockserver.Exec, window *record) {
	r := p.find(e.Key)
	if r == nil {
		return
	}
	r.gone = e.Time
	if r == window {
		p.ended = append(p.ended, e.Time)
	}
}

// lose notes that the server has lost all records.
func (h *history[T]) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, p := range h.past {
		for _, r := range p.records {
			if r.gone.IsZero() {
				r.gone = now
			}
		}
		p.note(now)
	}
}

// deed is an operation and what its caller was told.
type deed struct {
	op       string
	key      modelKey
	n, limit uint64
	from, to time.Time // to is far away for one that has failed and may yet be done
	count    uint64
	allowed  bool
	err      error
	safe     bool // it has failed, and certainly has done nothing
}

func (d deed) String() string {
	return fmt.Sprintf("%s %s/%v n=%d limit=%d from %v to %v: %d, allowed %v, %v", d.op, d.key.key, d.key.scale, d.n, d.limit,
		d.from.Format(clock), d.to.Format(clock), d.count, d.allowed, d.err)
}

// check returns what of the deeds on one key and scale can't be.
func (p *past) check(deeds []deed, recheck time.Duration) (wrong []string) {
	wrong = append(wrong, p.faults...)
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	claims := map[uint64][]deed{}
	counted := 0
	for _, d := range deeds {
		counts := d.op == "hit" || d.op == "inc"
		if counts && p.mayCount(d) {
			counted += int(d.n)
		}
		switch {
		case d.err != nil:
		case counts && (d.op == "inc" || d.allowed):
			for place := d.count - d.n + 1; place <= d.count; place++ {
				claims[place] = append(claims[place], d)
			}
			if d.op == "hit" && d.count > d.limit {
				add("allowed over the limit: %v", d)
			}
		case counts && !p.full(d, recheck):
			add("denied without reason: %v", d)
		case d.op == "get" && !p.was(d):
			add("no such count: %v", d)
		case (d.op == "set" || d.op == "reset") && p.outlived(d):
			add("the window is still there: %v", d)
		}
	}
	for place, all := range claims {
		for _, d := range unmatched(p.places[place], all) {
			add("place %d was not given to: %v", place, d)
		}
	}
	given := 0
	for _, times := range p.places {
		given += len(times)
	}
	if given > counted && !p.resets {
		add("%d were counted of %d", given, counted)
	}
	for _, at := range p.ended {
		if !slices.ContainsFunc(deeds, func(d deed) bool {
			return (d.op == "set" || d.op == "reset") && !d.safe && d.during(at)
		}) {
			add("a window was ended by nobody at %v", at.Format(clock))
		}
	}
	return append(wrong, p.overlaps()...)
}

// mayCount reports whether a hit may have been counted: if it was denied, it was given the
// place that it was told.
func (p *past) mayCount(d deed) bool {
	if d.err != nil || d.op == "inc" || d.allowed {
		return !d.safe
	}
	return slices.ContainsFunc(p.places[d.count], d.during)
}

func (d deed) during(at time.Time) bool { return !at.Before(d.from) && !at.After(d.to) }

// unmatched returns deeds that are left when each has been given one of the times within
// which it was under way, as many as possible: each time goes to the deed that ends first.
func unmatched(times []time.Time, deeds []deed) []deed {
	left := slices.SortedFunc(slices.Values(deeds), func(a, b deed) int { return a.to.Compare(b.to) })
	for _, at := range slices.SortedFunc(slices.Values(times), time.Time.Compare) {
		i := slices.IndexFunc(left, func(d deed) bool { return d.during(at) })
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	return left
}

// full reports whether a window may have been known to be over the limit: it had reached
// the count, and was not over when it was last looked at, nor removed for longer than a
// denial is remembered. How it stands is known from when it was asked for, an answer ago.
func (p *past) full(d deed, recheck time.Duration) bool {
	asked := d.from.Add(-modelSlowest)
	return d.count > d.limit && slices.ContainsFunc(p.records, func(r *record) bool {
		removed := !r.gone.IsZero() && r.gone.Before(asked.Add(-recheck))
		return r.most >= d.count && !r.start.After(d.to) && r.end.After(asked) && !removed
	})
}

// was reports whether the window had a count at any time of a deed.
func (p *past) was(d deed) bool {
	none := d.count == 0
	if none && (len(p.states) == 0 || d.from.Before(p.states[0].at)) {
		return true
	}
	for i, s := range p.states {
		until := d.to
		if i+1 < len(p.states) && p.states[i+1].at.Before(until) {
			until = p.states[i+1].at
		}
		if until.Before(d.from) || s.at.After(d.to) {
			continue
		}
		switch {
		case s.record == nil:
			if none {
				return true
			}
		case s.count == d.count && s.record.end.After(d.from):
			return true
		case none && !s.record.end.After(until):
			return true
		}
	}
	return false
}

// outlived reports whether a window that was there when a Set or Reset began is there at
// its end.
func (p *past) outlived(d deed) bool {
	return slices.ContainsFunc(p.records, func(r *record) bool {
		return r.start.Before(d.from) && r.end.After(d.to) && (r.gone.IsZero() || r.gone.After(d.to))
	})
}

// overlaps returns the windows that begin before the one before them is over.
func (p *past) overlaps() (wrong []string) {
	var last *record
	for _, s := range p.states {
		if s.record == nil || s.record == last {
			continue
		}
		if last != nil && last.gone.IsZero() && cmp.Compare(s.record.start.UnixNano(), last.end.UnixNano()) < 0 {
			wrong = append(wrong, fmt.Sprintf("%s of %v begins before %s of %v is over", s.record.name, s.record.start.Format(clock),
				last.name, last.start.Format(clock)))
		}
		last = s.record
	}
	return wrong
}

// tell returns all that has happened, line by line in its order.
func (p *past) tell(deeds []deed) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, r := range p.records {
		lines = append(lines, line{r.start, fmt.Sprint("    record ", r)})
	}
	for _, d := range deeds {
		lines = append(lines, line{d.from, fmt.Sprint("  ", d)})
	}
	for place, times := range p.places {
		for _, at := range times {
			lines = append(lines, line{at, fmt.Sprintf("      %v: place %d", at.Format(clock), place)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}
