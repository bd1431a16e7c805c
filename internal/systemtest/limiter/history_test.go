package limiter_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/mockserver"
)

// maxBatch bounds how many of the hits of one request a history remembers.
const maxBatch = 1 << 12

// history records what a server does to the records of windows: when windows open and end there,
// and which counts it gives to hits. It knows what the TTLs of slots mean, and nothing else of how
// clients come to their requests. The zero value is empty.
type history[T codec.Value] struct {
	mu   sync.Mutex // guards keys, and the keyHistories until the clients are closed
	keys map[modelKey]*keyHistory
}

// keyHistory is the history of one key and scale. All slices are in the order of time.
type keyHistory struct {
	bands   slot.Bands
	largest uint64
	records map[string]*record // by name
	windows []*serverWindow
	errors  []string // what must not happen
}

// record is a record on the server.
type record struct {
	count  uint64
	window *serverWindow // the last one that it held
}

// serverWindow is a window as the server has kept it.
type serverWindow struct {
	name       string // of its record
	start, end time.Time
	reset      bool // it was ended at end, before it was over
	lost       bool // the server lost it at end, before it was over
	count      uint64
	places     []place
}

// place is a count that the server has given to a hit.
type place struct {
	count uint64
	at    time.Time
}

func (w *serverWindow) String() string {
	s := fmt.Sprintf("%s from %v to %v, count %d", w.name, w.start.Format(timeFormat), w.end.Format(timeFormat), w.count)
	if w.reset {
		s += " (reset)"
	}
	return s
}

// of returns the history of a key and scale.
func (h *history[T]) of(k modelKey) *keyHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.get(k)
}

// get is of for a caller that holds mu.
func (h *history[T]) get(k modelKey) *keyHistory {
	if h.keys == nil {
		h.keys = map[modelKey]*keyHistory{}
	}
	if h.keys[k] == nil {
		bands, _ := slot.BandsFor(k.scale, uint64(^T(0)))
		h.keys[k] = &keyHistory{bands: bands, largest: uint64(^T(0)), records: map[string]*record{}}
	}
	return h.keys[k]
}

// observe is an observer of a mock server.
func (h *history[T]) observe(e mockserver.Exec) {
	name, ok := fixedwindow.ParseName([]byte(e.Key))
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.get(modelKey{name.Key, name.Scale})
	if !e.Status {
		return
	}
	switch r := e.Request.(type) {
	case codec.Insert[T]:
		k.insert(e, name, uint64(^r.Quota))
	case codec.Update[T]:
		k.update(e, name, r.Attribute, r.Change, uint64(r.Value))
	case codec.Purge:
		k.purge(e, name)
	default:
		return
	}
}

// removeAll records that the server has lost all records.
func (h *history[T]) removeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, k := range h.keys {
		if w := k.open(now); w != nil {
			w.end, w.lost = now, true
		}
		clear(k.records)
	}
}

// open returns the open window, or nil if there is none.
func (k *keyHistory) open(now time.Time) *serverWindow {
	for _, w := range slices.Backward(k.windows) {
		if now.Before(w.end) {
			return w
		}
	}
	return nil
}

func (k *keyHistory) wrong(e mockserver.Exec, format string, args ...any) {
	k.errors = append(k.errors, fmt.Sprintf("%v, connection %d, %T of %s: ", e.Time.Format(timeFormat), e.Conn, e.Request, e.Key)+
		fmt.Sprintf(format, args...))
}

// begin opens a window in a record.
func (k *keyHistory) begin(e mockserver.Exec, n fixedwindow.Name, r *record) {
	w := &serverWindow{name: e.Key, start: e.Time, count: r.count}
	w.end = e.Time.Add(n.Scale)
	if old := k.open(e.Time); old != nil {
		k.wrong(e, "opens a window before the end of %v", old)
	}
	r.window = w
	k.windows = append(k.windows, w)
}

func (k *keyHistory) insert(e mockserver.Exec, n fixedwindow.Name, count uint64) {
	r := &record{count: count}
	k.records[e.Key] = r
	k.begin(e, n, r)
	r.window.assign(e.Time, 0, count)
}

func (k *keyHistory) update(e mockserver.Exec, n fixedwindow.Name, a codec.Attribute, c codec.Change, value uint64) {
	r := k.records[e.Key]
	if r == nil {
		k.wrong(e, "there is no such record")
		return
	}
	live := e.Time.Before(r.window.end)
	switch {
	case a == codec.TimeToLive && c == codec.Patch:
		k.patchTTL(e, n, r, live, value)
	case a == codec.Quota && c == codec.Patch:
		r.count = k.largest - value
		if live {
			k.wrong(e, "replaces the count of %v", r.window)
		}
	case a == codec.Quota && c == codec.Decrease:
		r.count += value
		if live {
			r.window.assign(e.Time, r.count-value, r.count)
		}
	default:
		k.wrong(e, "%v %v", a, c)
	}
	if r.count != k.largest-e.Quota {
		k.wrong(e, "the count is %d, not %d", k.largest-e.Quota, r.count)
	}
}

// patchTTL opens, extends or ends a window, or changes how long an idle record lives.
func (k *keyHistory) patchTTL(e mockserver.Exec, n fixedwindow.Name, r *record, live bool, ttl uint64) {
	opens := ttl == k.bands.Top
	switch w := r.window; {
	case !opens && ttl >= k.bands.Margin:
		k.wrong(e, "sets a TTL of %d", ttl)
	case live && opens:
		if e.Time.Sub(w.start) >= k.bands.Guard {
			k.wrong(e, "extends %v", w)
		}
		w.end = e.Time.Add(n.Scale)
	case live:
		w.end, w.reset = e.Time, true
	case opens:
		k.begin(e, n, r)
	}
}

func (k *keyHistory) purge(e mockserver.Exec, n fixedwindow.Name) {
	r := k.records[e.Key]
	if r == nil {
		k.wrong(e, "there is no such record")
		return
	}
	if e.Time.Before(r.window.end) {
		k.wrong(e, "removes the record of %v", r.window)
	}
	delete(k.records, e.Key)
}

// assign records that hits were given the counts after from, up to to.
func (w *serverWindow) assign(at time.Time, from, to uint64) {
	w.count = to
	for count := from + 1; count <= min(to, from+maxBatch); count++ {
		w.places = append(w.places, place{count, at})
	}
}

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
