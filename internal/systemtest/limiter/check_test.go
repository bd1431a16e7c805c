package limiter_test

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// check returns what in the results of operations, which are all those on the key, contradicts the
// history.
func (k *keyHistory) check(operations []operation) (wrong []string) {
	wrong = slices.Clone(k.errors)
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	maxCounted := uint64(0) // by all operations that may have been executed
	for _, op := range operations {
		if k.mayHaveCounted(op) {
			maxCounted += op.n
		}
		switch {
		case op.err != nil:
		case op.kind == opHit && op.allowed && op.count > op.limit:
			add("allowed over the limit: %v", op)
		case op.kind == opHit && !op.allowed && !k.mayDeny(op):
			add("denied without reason: %v", op)
		case op.replaces() && k.outlives(op):
			add("the window was not replaced: %v", op)
		}
	}
	_, homeless := k.match(operations)
	for _, op := range homeless {
		add("the server has not given this count, or has given it to another hit: %v", op)
	}
	counted := uint64(0)
	for _, w := range k.windows {
		counted += uint64(len(w.places))
		if w.reset && !slices.ContainsFunc(operations, func(op operation) bool { return op.replaces() && !op.notSent && op.includes(w.end) }) {
			add("a window was ended without a Set or Reset: %v", w)
		}
	}
	// A Set or Reset adds a hit to a window without hits before it ends it.
	if counted > maxCounted && !slices.ContainsFunc(operations, operation.replaces) {
		add("%d were counted of %d", counted, maxCounted)
	}
	return wrong
}

// match gives each count of a granted hit to one of the places of that count that the server
// assigned while the hit was made. It returns how many places of each window are taken, and the
// hits that get none. So if none are left, no window has granted more hits than their limit, for
// each count is assigned once in a window.
func (k *keyHistory) match(operations []operation) (taken map[*serverWindow]uint64, homeless []operation) {
	type home struct {
		at     time.Time
		window *serverWindow
	}
	places := map[uint64][]home{}
	for _, w := range k.windows {
		for _, p := range w.places {
			places[p.count] = append(places[p.count], home{p.at, w})
		}
	}
	wanted := map[uint64][]operation{}
	for _, op := range operations {
		if !op.granted() {
			continue
		}
		for count := op.count - op.n + 1; count <= op.count; count++ {
			wanted[count] = append(wanted[count], op)
		}
	}
	taken = map[*serverWindow]uint64{}
	for count, rest := range wanted {
		// As many as possible are matched: each place goes to the operation that ends first.
		slices.SortFunc(rest, func(a, b operation) int { return a.end.Compare(b.end) })
		slices.SortStableFunc(places[count], func(a, b home) int { return a.at.Compare(b.at) })
		for _, h := range places[count] {
			if i := slices.IndexFunc(rest, func(op operation) bool { return op.includes(h.at) }); i >= 0 {
				rest = slices.Delete(rest, i, i+1)
				taken[h.window]++
			}
		}
		homeless = append(homeless, rest...)
	}
	return taken, homeless
}

// mayHaveCounted reports whether an operation may have added to the count of a window. A denied
// hit did if the server assigned the count that it returned.
func (k *keyHistory) mayHaveCounted(op operation) bool {
	switch {
	case op.notSent:
		return false
	case op.kind != opHit || op.err != nil || op.allowed:
		return op.kind != opReset
	}
	return slices.ContainsFunc(k.windows, func(w *serverWindow) bool {
		return slices.ContainsFunc(w.places, func(p place) bool { return p.count == op.count && op.includes(p.at) })
	})
}

// mayDeny reports whether a client may have known a window that denies a hit: one that reached the
// count, that was not over when the client read it, up to a round trip before the hit, and that was
// neither reset nor lost longer before than a client remembers denials.
func (k *keyHistory) mayDeny(op operation) bool {
	read := op.start.Add(-maxRoundTrip)
	memory := min(max(op.key.scale/10, 10*time.Millisecond), time.Second)
	return op.count > op.limit && slices.ContainsFunc(k.windows, func(w *serverWindow) bool {
		from := read
		if w.reset || w.lost {
			from = from.Add(-memory)
		}
		return w.count >= op.count && !w.start.After(op.end) && w.end.After(from)
	})
}

// outlives reports whether a window was open before an operation and still is after it.
func (k *keyHistory) outlives(op operation) bool {
	return slices.ContainsFunc(k.windows, func(w *serverWindow) bool {
		return w.start.Before(op.start) && w.end.After(op.end)
	})
}

// format returns the history and the operations, each in the order of time.
func (k *keyHistory) format(operations []operation) string {
	var b strings.Builder
	for _, w := range k.windows {
		fmt.Fprintf(&b, "    window %v\n", w)
		for _, p := range w.places {
			fmt.Fprintf(&b, "      %v: count %d\n", p.at.Format(timeFormat), p.count)
		}
	}
	for _, op := range slices.SortedFunc(slices.Values(operations), func(a, b operation) int { return a.start.Compare(b.start) }) {
		fmt.Fprintf(&b, "  %v\n", op)
	}
	return b.String()
}
