package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// known is what is known of the open window of a count.
type known struct {
	slot.Window
	ok   bool       // there is a known window; otherwise the rest is of the last one
	id   int64      // identifies the window
	conn *conn.Conn // where takes were counted; nil if there were none
}

// window returns what callers see of the window. Its end is never more than a scale away.
func (k *known) window(scale time.Duration, now time.Time) window.Window {
	left := min(max(k.Latest.Sub(now), 1), scale)
	return window.Window{Count: k.Count, ExpiresAt: now.Add(left), Left: left, ID: k.id}
}

// subtract lowers the count: n was given back, or is about to be.
func (k *known) subtract(n uint64) { k.Count -= min(k.Count, n) }

// certainlyOpen reports whether there is a window that can't be over.
func (k *known) certainlyOpen(now time.Time) bool { return k.ok && k.Open(now) }

// maybeOpen reports whether there is a window that is not certainly over.
func (k *known) maybeOpen(now time.Time) bool { return k.ok && now.Before(k.Latest) }

// verdict is what admit decides about a hit.
type verdict uint8

const (
	shares  verdict = iota // the hit shares the next request
	waits                  // it waits until that has been counted; if there is none, prepare is called first
	decided                // it needs no request
)

// admit decides about a hit, given the others before it that share the next request. It returns a window only if the
// verdict is decided. ReadSince says that the known window was read after the caller has come, so that it may deny
// the hit. The caller holds mu.
func (s *countState) admit(others *shared, h *hit, readSince bool) (verdict, window.Window) {
	k := &s.known
	switch {
	case !k.ok && s.queue.plan.conn != nil: // the hit opens a window
		if h.take && h.n > h.max {
			return decided, window.Window{Refused: true}
		}
	case !k.ok || !s.queue.prepared && !k.Open(others.now): // prepare is to look at the window first
		return waits, window.Window{}
	case h.charge || k.Count <= h.max && h.hasRoom(k.Count): // it is counted, with others if it fits
	case readSince || s.mayRefuse(others.now):
		w := k.window(s.bands.Scale, others.now)
		w.Refused = h.take // a hit is denied by its Count
		return decided, w
	default: // the window may have been reset
		return waits, window.Window{}
	}
	if s.queue.uncertain || !canShare(s.bands.Largest, others, h) {
		return waits, window.Window{}
	}
	return shares, window.Window{}
}

// canShare reports whether h can share a request with other hits. If the counter can't hold their sum, the request
// counts none of them, and all are denied: each must have a limit below the count then. The count is more than
// largest - sum, so it is above all limits if the sum is less than largest - max, where max is the highest of them.
// A charge, whose max is the largest, shares none. A hit without others fits, however large.
func canShare(largest uint64, others *shared, h *hit) bool {
	most := largest - max(others.max, h.max)
	return len(others.callers) == 0 || others.sum < most && h.n < most-others.sum
}

// mayRefuse reports whether hits over the limit are denied from memory: the known window was read recently, and has
// certainly not ended since. The caller holds mu.
func (s *countState) mayRefuse(now time.Time) bool {
	return now.Sub(s.known.Sent) < s.backend.denialMemoryOf(s.scale) && s.known.certainlyOpen(now)
}

// current returns the known window.
func (s *countState) current() known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// identify returns a window as it is known together with what was known before. It gets a new ID unless it is
// certainly the window that was known. C is where takes were counted in it, or nil. The caller holds mu.
func (s *countState) identify(w slot.Window, c *conn.Conn) known {
	k := known{Window: w, ok: true, conn: c}
	if old := &s.known; old.ok {
		if c == nil {
			k.conn = old.conn
		}
		if k.Slot == old.Slot && k.Narrow(&old.Times, s.bands.Guard) && (old.conn == nil || k.conn == old.conn) {
			k.id = old.id
		}
	}
	if k.id == 0 {
		k.id = s.backend.ids.Add(1)
	}
	return k
}

// learn makes a window that was read the known one, and returns it.
func (s *countState) learn(w slot.Window) known {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = s.identify(w, nil)
	return s.known
}

// learnUnlessKnown is learn for a window that was read while hits and operations could be under way. It becomes the
// known one only if none was known before its requests were sent, nor since: that one may have been reset.
func (s *countState) learnUnlessKnown(w slot.Window, before known) known {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.identify(w, nil)
	if !before.ok && s.known == before {
		s.known = k
	}
	return k
}

// subtract lowers the known count.
func (s *countState) subtract(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.subtract(n)
}

// forget forgets the known window, because it is over or was reset.
func (s *countState) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.ok = false
}
