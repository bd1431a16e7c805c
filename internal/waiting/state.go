package waiting

import (
	"math"
	"time"
)

// state is what a queue knows of its window.
type state struct {
	known   bool
	rolling bool // end is when the turn that was refused would be granted
	closed  bool // the turn was refused that any count has room for: by a policy, which knows no count
	count   uint64
	end     time.Time // of the window, at the earliest
	ask     time.Time // when to ask again although the window is open
	after   time.Time // a little later than the end of the window, at the latest
}

const (
	minRecheck = time.Millisecond
	maxRecheck = time.Second
)

// after returns the state after an answer to a turn.
func after(a Answer, t Turn, now time.Time) state {
	left, scale, count, closed := max(a.Left, 0), t.Scale, a.Count, false
	if t.Algorithm.Rolling() && a.Granted {
		return state{}
	}
	least, jittered := minRecheck, scale
	if t.Algorithm.Rolling() {
		least, jittered = minRecheck/10, min(left, scale)
	}
	if !a.Granted { // whatever the count is: a policy that refuses knows none
		if t.Limit-t.N == math.MaxUint64 {
			closed = true
		} else {
			count = max(count, t.Limit-t.N+1)
		}
	}
	return state{
		known: true, rolling: t.Algorithm.Rolling(), closed: closed, count: count,
		end: now.Add(max(left-a.Early, 0)), after: now.Add(max(left+jitter(jittered), least)),
		ask: now.Add(min(max(scale/10, minRecheck), maxRecheck)),
	}
}

// pause returns for how long to wait before asking for a turn: 0 if it may be granted now.
func (s state) pause(t Turn, now time.Time) time.Duration {
	if !s.known || !s.closed && s.count <= t.Limit-t.N {
		return 0
	}
	at := s.after
	if s.ask.Before(at) {
		at = s.ask
	}
	return max(0, at.Sub(now))
}

// line computes when turns come at the earliest: one after the other, and each in the first window
// that has room for it. Nobody else may take something, and windows open when others end.
type line struct {
	known   bool
	rolling bool
	closed  bool      // no turn has room in the window
	at      time.Time // when the window is open, or opens
	end     time.Time // when it ends
	count   uint64
}

func (s state) line(now time.Time) line {
	if s.known && !now.Before(s.end) {
		return line{} // how much room the next window has is not known
	}
	return line{known: s.known, rolling: s.rolling, closed: s.closed, at: now, end: s.end, count: s.count}
}

// add adds a turn to the line, and returns when it comes at the earliest.
func (l *line) add(t Turn) time.Time {
	if !l.known {
		return l.at
	}
	if l.rolling { // when the turns after the first one come is not known
		if l.known = false; l.closed || l.count > t.Limit-t.N {
			l.at = l.end
		}
		return l.at
	}
	if l.closed || l.count > t.Limit-t.N {
		l.at, l.end, l.count, l.closed = l.end, l.end.Add(t.Scale), 0, false
	}
	l.count += t.N
	return l.at
}
