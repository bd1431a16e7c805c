package limiter_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// history records what a server does to the records of windows. The zero value is empty.
type history[T codec.Value] struct {
	mu   sync.Mutex // guards keys, and the keyHistories until the clients are closed
	keys map[modelKey]*keyHistory
}

// keyHistory is the history of one key and scale. All slices are in the order of time.
type keyHistory struct {
	// replaced says that the windows are Set and Reset. A record can then have the name of an
	// earlier one, which some clients still know. What they add to it at its end can count
	// there and, once more, in the next window.
	replaced bool
	records  []*recordHistory
	assigned map[uint64][]time.Time // when hits were given each count of a window
	states   []windowState
	ended    []time.Time // when a window was removed that was not over
	errors   []string    // what must not happen
}

// recordHistory is the history of a record, from its INSERT until it is removed or its window is
// over.
type recordHistory struct {
	name       string
	start, end time.Time // of its window
	count      uint64
	removed    time.Time // zero if it was not removed
}

// windowState is the state of a window until the next windowState.
type windowState struct {
	start  time.Time
	record *recordHistory // nil if there is no window
	count  uint64
}

func (r *recordHistory) String() string {
	s := fmt.Sprintf("%s of %v, last count %d", r.name, r.start.Format(timeFormat), r.count)
	if !r.removed.IsZero() {
		s += ", removed at " + r.removed.Format(timeFormat)
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
		h.keys[k] = &keyHistory{replaced: k.key == replacedKey, assigned: map[uint64][]time.Time{}}
	}
	return h.keys[k]
}

// observe is an observer of a mock server.
func (h *history[T]) observe(e mockserver.Exec) {
	text, id, ok := parseRecordName(e.Key)
	if !ok || !e.Status {
		return
	}
	scale, err := time.ParseDuration(text)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.get(modelKey{id.key, scale})
	switch r := e.Request.(type) {
	case codec.Insert[T]:
		k.insert(e, scale)
	case codec.Update[T]:
		k.increase(e, uint64(r.Value))
	case codec.Purge:
		k.purge(e)
	}
}

// removeAll records that the server has lost all records.
func (h *history[T]) removeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, k := range h.keys {
		for _, r := range k.records {
			if r.removed.IsZero() {
				r.removed = now
			}
		}
		k.addState(now)
	}
}

// window returns the record of the active window, which is the oldest live one. It returns nil if
// there is none.
func (k *keyHistory) window(now time.Time) *recordHistory {
	for _, r := range k.records {
		if r.removed.IsZero() && now.Before(r.end) {
			return r
		}
	}
	return nil
}

// find returns the last record of a name, or nil if it was removed.
func (k *keyHistory) find(name string) *recordHistory {
	for _, r := range slices.Backward(k.records) {
		if r.name == name && r.removed.IsZero() {
			return r
		}
	}
	return nil
}

func (k *keyHistory) insert(e mockserver.Exec, scale time.Duration) {
	opens := k.window(e.Time) == nil
	k.records = append(k.records, &recordHistory{name: e.Key, start: e.Time, end: e.Time.Add(scale), count: e.Quota})
	if opens && e.Quota <= maxIncrement { // more than that is the count of a Set
		k.assign(e.Time, 0, e.Quota)
	}
	k.addState(e.Time)
}

func (k *keyHistory) increase(e mockserver.Exec, n uint64) {
	r := k.find(e.Key)
	if r == nil {
		return
	}
	r.count += n
	if e.Quota != r.count {
		k.errors = append(k.errors, fmt.Sprintf("%s has wrapped to %d at %v", e.Key, e.Quota, e.Time))
	}
	if r == k.window(e.Time) {
		k.assign(e.Time, r.count-n, r.count)
	}
	k.addState(e.Time)
}

func (k *keyHistory) purge(e mockserver.Exec) {
	r := k.find(e.Key)
	if r == nil {
		return
	}
	if r == k.window(e.Time) {
		k.ended = append(k.ended, e.Time)
	}
	r.removed = e.Time
	k.addState(e.Time)
}

// assign records that hits were given the counts after from, up to to.
func (k *keyHistory) assign(at time.Time, from, to uint64) {
	for count := from + 1; count <= to; count++ {
		k.assigned[count] = append(k.assigned[count], at)
	}
}

func (k *keyHistory) addState(at time.Time) {
	s := windowState{start: at, record: k.window(at)}
	if s.record != nil {
		s.count = s.record.count
	}
	k.states = append(k.states, s)
}
