// Package limiter_test tests rate limits on servers as the users of several clients see them: when
// callers are many, when clocks differ, when windows open at the same time, and when connections
// and servers fail. Most tests run in virtual time.
package limiter_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// ledger records the windows that a server opens, and how many hits are allowed in each. Its
// method observe is an observer of a mock server, decided is for testkit.Traced.
type ledger struct {
	mu      sync.Mutex // guards what follows
	windows map[windowID]*windowEntry
}

// windowID identifies a window among those of a scale. The id is Window.ID, which is also the
// bucket in the name of the window's record.
type windowID struct {
	key string
	id  int64
}

// windowEntry is what a ledger knows of a window.
type windowEntry struct {
	windowID
	opened  time.Time // when the server executed its last INSERT
	inserts int       // that succeeded
	allowed uint64    // hits
}

func newLedger() *ledger { return &ledger{windows: map[windowID]*windowEntry{}} }

// entry returns the entry of a window. The caller holds mu.
func (l *ledger) entry(id windowID) *windowEntry {
	if l.windows[id] == nil {
		l.windows[id] = &windowEntry{windowID: id}
	}
	return l.windows[id]
}

func (l *ledger) observe(x mockserver.Exec) {
	_, id, ok := parseRecordName(x.Key)
	if x.Op != codec.OpInsert || !x.Status || !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.entry(id)
	w.opened = x.Time
	w.inserts++
}

func (l *ledger) decided(key string, id int64, count, limit uint64) {
	if count > limit {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(windowID{key, id}).allowed++
}

// windowsOf returns the windows of a key in which hits were allowed, in the order of their
// opening.
func (l *ledger) windowsOf(key string) []windowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var windows []windowEntry
	for id, w := range l.windows {
		if id.key == key && w.allowed > 0 {
			windows = append(windows, *w)
		}
	}
	slices.SortFunc(windows, func(a, b windowEntry) int { return a.opened.Compare(b.opened) })
	return windows
}

// parseRecordName splits the name of a window's record: rl:scale:bucket:key. Those of aligned
// windows start with al:. It returns false for other names.
func parseRecordName(name string) (scale string, id windowID, ok bool) {
	part := strings.SplitN(name, ":", 4)
	if len(part) != 4 {
		return "", windowID{}, false
	}
	bucket, err := strconv.ParseInt(part[2], 10, 64)
	return part[1], windowID{part[3], bucket}, err == nil
}

// sleepUntilBucket sleeps until the next bucket of a scale begins.
func sleepUntilBucket(scale time.Duration) {
	time.Sleep(scale - time.Duration(time.Now().UnixNano())%scale)
}
