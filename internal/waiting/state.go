package waiting

import (
	"time"

	"github.com/throttr-go/throttr/internal/limits"
)

// state is what a queue knows of its window. The zero state knows nothing.
type state struct {
	count uint64
	end   time.Time // of the window, at the earliest; of a rolling one, when the turn that was refused would be granted
	ask   time.Time // when to ask again although the window is open
	ended time.Time // when the window has ended for certain, and a little later
	of    *spot     // whose refusal is all that is known; nil: the window is known
}

const (
	minRecheck = time.Millisecond
	maxRecheck = time.Second
	// clocksDiffer is how much sooner than by the clock of the store a calendar window may end by that of the process.
	clocksDiffer = time.Hour
)

// stateAfter returns the state after an answer to the turn at a spot.
func stateAfter(a Answer, of *spot, now time.Time) state {
	t := &of.Turn
	left := max(a.Left, 0)
	full := t.Limit - t.N + 1 // the least count that refuses the turn
	length := limits.Length(&t.Of, now)
	s := state{
		count: a.Count, end: now.Add(max(left-a.Early, 0)),
		ended: now.Add(max(left+jitter(length), minRecheck)),
		ask:   now.Add(min(max(length/10, minRecheck), maxRecheck)),
	}
	rolling := t.Of.Algorithm.Rolling()
	switch {
	case rolling && !a.Refused: // what was granted says nothing about the next turn
		return state{}
	case rolling:
		s.count = max(a.Count, full)
		s.ended = now.Add(max(left+jitter(min(left, length)), minRecheck/10))
		s.of = of
	case a.Refused && a.Count < full: // a policy that refuses knows no count
		s.count = full
		s.of = of
	}
	return s
}

// pause returns for how long to wait before asking for a turn: 0 if it may be granted now.
func (s state) pause(t Turn, now time.Time) time.Duration {
	if s.count <= t.Limit-t.N {
		return 0
	}
	return max(0, min(s.ended.Sub(now), s.ask.Sub(now)))
}

// line computes when turns come at the earliest: one after the other, and each in the first window
// that has room for it. Nobody else may take something, and windows open when others end.
type line struct {
	at    time.Time // when the window is open, or opens
	end   time.Time // when it ends; zero if that is not known
	count uint64
}

func (s state) line(now time.Time) line {
	if !now.Before(s.end) {
		return line{at: now} // how much room the next window has is not known
	}
	return line{at: now, end: s.end, count: s.count}
}

// add adds a turn to the line, and returns when it comes at the earliest.
func (l *line) add(t Turn) time.Time {
	if l.end.IsZero() {
		return l.at
	}
	if l.count > t.Limit-t.N { // no room
		l.at = l.end // of this window, at which the next one opens
		l.end = l.end.Add(limits.Length(&t.Of, l.end.Add(clocksDiffer)))
		l.count = 0
	}
	l.count += t.N
	if t.Of.Algorithm.Rolling() {
		l.end = time.Time{} // when the turns after the first one come is not known
	}
	return l.at
}
