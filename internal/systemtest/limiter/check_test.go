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
	returned := map[uint64][]operation{} // by each count that the operation has added
	maxCounted := 0                      // by all operations that may have been executed
	for _, op := range operations {
		if op.counts() && k.mayHaveCounted(op) {
			maxCounted += int(op.n)
		}
		switch {
		case op.err != nil:
		case op.kind == opInc || op.kind == opHit && op.allowed:
			for count := op.count - op.n + 1; count <= op.count; count++ {
				returned[count] = append(returned[count], op)
			}
			if op.kind == opHit && op.count > op.limit {
				add("allowed over the limit: %v", op)
			}
		case op.kind == opHit && !k.mayDeny(op):
			add("denied without reason: %v", op)
		case op.kind == opGet && !k.hadCount(op):
			add("the count was never that: %v", op)
		case op.replaces() && k.outlives(op):
			add("the window was not replaced: %v", op)
		}
	}
	for count, ops := range returned {
		for _, op := range unmatched(k.assigned[count], ops) {
			add("count %d was not assigned to: %v", count, op)
		}
	}
	counted := 0
	for _, times := range k.assigned {
		counted += len(times)
	}
	if counted > maxCounted && !k.replaced {
		add("%d were counted of %d", counted, maxCounted)
	}
	for _, at := range k.ended {
		if !slices.ContainsFunc(operations, func(op operation) bool { return op.replaces() && !op.notSent && op.includes(at) }) {
			add("a window was removed without a Set or Reset at %v", at.Format(timeFormat))
		}
	}
	return append(wrong, k.overlaps()...)
}

// mayHaveCounted reports whether a hit may have been counted. If it was denied, it was if the
// server assigned the count that it returned.
func (k *keyHistory) mayHaveCounted(op operation) bool {
	if op.err != nil || op.kind == opInc || op.allowed {
		return !op.notSent
	}
	return slices.ContainsFunc(k.assigned[op.count], op.includes)
}

// unmatched matches each time with an operation that includes it, and returns the operations that
// remain. It matches as many as possible: each time goes to the operation that ends first.
func unmatched(times []time.Time, operations []operation) []operation {
	rest := slices.SortedFunc(slices.Values(operations), func(a, b operation) int { return a.end.Compare(b.end) })
	for _, at := range slices.SortedFunc(slices.Values(times), time.Time.Compare) {
		if i := slices.IndexFunc(rest, func(op operation) bool { return op.includes(at) }); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return rest
}

// mayDeny reports whether a client may have known a window that denies a hit: one that reached the
// count, that was not over when the client read it, up to a round trip before the hit, and that was
// not removed longer before than a client remembers denials.
func (k *keyHistory) mayDeny(op operation) bool {
	read := op.start.Add(-maxRoundTrip)
	memory := min(max(op.key.scale/10, 10*time.Millisecond), time.Second)
	return op.count > op.limit && slices.ContainsFunc(k.records, func(r *recordHistory) bool {
		forgotten := !r.removed.IsZero() && r.removed.Before(read.Add(-memory))
		return r.count >= op.count && !r.start.After(op.end) && r.end.After(read) && !forgotten
	})
}

// hadCount reports whether the window had the count of an operation at any time between its start
// and end. Without a window, the count is 0.
func (k *keyHistory) hadCount(op operation) bool {
	zero := op.count == 0
	if zero && (len(k.states) == 0 || op.start.Before(k.states[0].start)) {
		return true
	}
	for i, s := range k.states {
		until := op.end
		if i+1 < len(k.states) && k.states[i+1].start.Before(until) {
			until = k.states[i+1].start
		}
		if until.Before(op.start) || s.start.After(op.end) {
			continue
		}
		switch {
		case s.record == nil:
			if zero {
				return true
			}
		case s.count == op.count && s.record.end.After(op.start):
			return true
		case zero && !s.record.end.After(until):
			return true
		}
	}
	return false
}

// outlives reports whether a window was active before an operation and still is after it.
func (k *keyHistory) outlives(op operation) bool {
	return slices.ContainsFunc(k.records, func(r *recordHistory) bool {
		return r.start.Before(op.start) && r.end.After(op.end) && (r.removed.IsZero() || r.removed.After(op.end))
	})
}

// overlaps describes the windows that open before the previous one is over.
func (k *keyHistory) overlaps() (wrong []string) {
	var last *recordHistory
	for _, s := range k.states {
		if s.record == nil || s.record == last {
			continue
		}
		if last != nil && last.removed.IsZero() && s.record.start.Before(last.end) {
			wrong = append(wrong, fmt.Sprintf("%v opens before the end of %v", s.record, last))
		}
		last = s.record
	}
	return wrong
}

// format returns the history and the operations as lines in the order of time.
func (k *keyHistory) format(operations []operation) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, r := range k.records {
		lines = append(lines, line{r.start, fmt.Sprintf("    record %v", r)})
	}
	for _, op := range operations {
		lines = append(lines, line{op.start, fmt.Sprintf("  %v", op)})
	}
	for count, times := range k.assigned {
		for _, at := range times {
			lines = append(lines, line{at, fmt.Sprintf("      %v: count %d", at.Format(timeFormat), count)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}
