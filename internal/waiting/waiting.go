// Package waiting lets callers wait in line for shares of windows: first come, first served, for each
// count. It knows no store: a caller asks the store when its turn has come.
//
//	queues := waiting.New(1024)
//	turns := []waiting.Turn{{Count: requests, Limit: 10, N: 1}, {Count: tokens, Limit: 1000, N: 70}}
//	err := queues.Wait(ctx, turns, take)
//
// There is a queue for each count. A caller joins all its queues in one step, so of two callers, the same
// one is ahead in every queue that both are in, and nobody waits in a circle. The first in all its queues
// asks. If it is refused, it waits for the ends of the windows, and asks again in between: somebody may
// have given back, or reset a window. A caller whose turn certainly comes after the deadline of its context
// fails at once.
package waiting

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// ErrFull says that a queue is full.
var ErrFull = errors.New("throttr: too many callers wait")

// LateError says that a caller can't have its turn before the deadline of its context.
type LateError struct {
	Turn int       // the index of the turn that is too late
	At   time.Time // when it comes at the earliest
}

// Error implements error.
func (e *LateError) Error() string { return "throttr: the wait would exceed the deadline" }

// Count is what a queue is for: a key, and what tells its limits apart.
type Count struct {
	Key string
	Of  window.Limit // without a Max and a Burst
}

// Turn is what a caller waits for: n of a count. The counts of a caller's turns differ.
type Turn struct {
	Count
	Limit uint64        // the largest count
	N     uint64        // 1 to Limit
	Early time.Duration // how much sooner than the store says a window may end
}

// Answer is the result of a take for one turn.
type Answer struct {
	Refused bool          // by this count: if it is not, another one may have been
	Count   uint64        // of the window
	Left    time.Duration // until the window ends; with a rolling algorithm, if Refused, until it would not be
	Early   time.Duration // how much less than Left that may be
}

// Take makes the takes of all turns, or none. It sets the answers, in the order of the turns.
type Take func(ctx context.Context, answers []Answer) (granted bool, err error)

// Queues are the queues of all counts. A queue exists while callers wait.
//
// The mutex guards all queues, their spots and their waiters.
type Queues struct {
	most   int // callers of a queue
	mu     sync.Mutex
	queues map[Count]*queue
}

// New returns queues of at most the given number of callers each.
func New(most int) *Queues { return &Queues{most: most, queues: map[Count]*queue{}} }

// queue is the callers that wait for a count.
type queue struct {
	spots list.List // of type *spot, in the order of the callers
	state state
}

// first returns the spot of the first caller.
func (q *queue) first() *spot { return q.spots.Front().Value.(*spot) }

// spot is where a waiter stands in a queue.
type spot struct {
	Turn
	index  int // of the turn
	waiter *waiter
	queue  *queue
	at     *list.Element // of the queue
	woken  bool          // the queue was woken while its waiter asks: the answer may be of the time before
}

// waiter is a caller that waits.
type waiter struct {
	spots    []spot
	answers  []Answer
	behind   int           // queues in which another waiter is the first
	deadline time.Time     // zero: none
	turn     chan struct{} // closed when the waiter is first in all queues, or removed; nil: it was first at once
	refresh  chan struct{} // holds a value if the waiter should ask now; nil: it has not slept
	err      error         // why it was removed; nil: it was not
}

// Wait returns nil after take has been granted, or its error. Take is called by one caller of a queue at a
// time, in the order of calls of Wait. Other errors are [ErrFull], a [*LateError], and that of ctx.
func (qs *Queues) Wait(ctx context.Context, turns []Turn, take Take) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &waiter{spots: make([]spot, len(turns)), answers: make([]Answer, len(turns))}
	for i, t := range turns {
		w.spots[i] = spot{Turn: t, index: i, waiter: w}
	}
	w.deadline, _ = ctx.Deadline()
	if err := qs.join(w); err != nil {
		return err
	}
	defer qs.leave(w)
	if w.turn != nil {
		select {
		case <-w.turn:
			if w.err != nil {
				return w.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return qs.ask(ctx, w, take)
}

// join puts a waiter at the end of its queues.
func (qs *Queues) join(w *waiter) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i := range w.spots {
		if q := qs.queues[w.spots[i].Count]; q != nil && q.spots.Len() >= qs.most {
			return ErrFull
		}
	}
	for i := range w.spots {
		s := &w.spots[i]
		if s.queue = qs.queues[s.Count]; s.queue == nil {
			s.queue = &queue{}
			qs.queues[s.Count] = s.queue
		}
		if s.queue.spots.Len() > 0 {
			w.behind++
		}
		s.at = s.queue.spots.PushBack(s)
	}
	if w.behind == 0 {
		return nil
	}
	w.turn = make(chan struct{})
	qs.failLate(w, time.Now())
	return w.err
}

// leave removes a waiter, unless it has been removed because of its err.
func (qs *Queues) leave(w *waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.err == nil {
		qs.remove(w)
	}
}

// remove removes a waiter from its queues, and gives their turns to those that are the first now. The mutex
// is held.
func (qs *Queues) remove(w *waiter) {
	for i := range w.spots {
		s := &w.spots[i]
		q := s.queue
		if q.state.of == s {
			q.state = state{} // what those behind it have to wait for is not known
		}
		wasFirst := q.first() == s
		q.spots.Remove(s.at)
		switch {
		case q.spots.Len() == 0:
			delete(qs.queues, s.Count)
		case wasFirst:
			next := q.first().waiter
			next.behind--
			if next.behind == 0 {
				close(next.turn)
			}
		}
	}
}

// ask asks until a waiter is granted its takes, or fails.
func (qs *Queues) ask(ctx context.Context, w *waiter, take Take) error {
	for {
		pause, err := qs.next(w)
		if err != nil {
			return err
		}
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-w.refresh:
			case <-ctx.Done():
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			continue
		}
		granted, err := take(ctx, w.answers)
		if err != nil {
			return err
		}
		qs.learn(w)
		if granted {
			return nil
		}
	}
}

// next returns for how long a waiter should wait before it asks, or a [*LateError], after which it is removed.
func (qs *Queues) next(w *waiter) (pause time.Duration, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	now := time.Now()
	late := &LateError{}
	for i := range w.spots {
		s := &w.spots[i]
		l := s.queue.state.line(now)
		if at := l.add(s.Turn); i == 0 || at.After(late.At) {
			late.Turn = i
			late.At = at
		}
		pause = max(pause, s.queue.state.pause(s.Turn, now))
		s.woken = false
	}
	if w.late(late.At) {
		w.err = late
		qs.remove(w)
		return 0, w.err
	}
	if pause > 0 && w.refresh == nil {
		w.refresh = make(chan struct{}, 1)
	}
	qs.failLate(w, now)
	return pause, nil
}

// learn sets the states of a waiter's queues to what its answers say.
func (qs *Queues) learn(w *waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	now := time.Now()
	for i := range w.spots {
		if s := &w.spots[i]; !s.woken {
			s.queue.state = stateAfter(w.answers[i], s, now)
		}
	}
}

// late reports whether a turn at the given time is after the deadline.
func (w *waiter) late(at time.Time) bool { return !w.deadline.IsZero() && at.After(w.deadline) }

// failLate removes the waiters of the queues of w that can't have their turns before their deadlines, but
// not those that may be asking. The mutex is held.
func (qs *Queues) failLate(w *waiter, now time.Time) {
	for i := range w.spots {
		q := w.spots[i].queue
		l := q.state.line(now)
		for e := q.spots.Front(); e != nil; {
			s, before := e.Value.(*spot), l
			e = e.Next()
			if at := l.add(s.Turn); s.waiter.behind > 0 && s.waiter.late(at) {
				l = before
				s.waiter.err = &LateError{Turn: s.index, At: at}
				close(s.waiter.turn)
				qs.remove(s.waiter)
			}
		}
	}
}

// Refresh makes the first waiter for a count ask now: something was given back, or the window was
// reset.
func (qs *Queues) Refresh(c Count) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.queues[c]; q != nil {
		q.wake()
	}
}

// RefreshKey is Refresh for all counts of a key.
func (qs *Queues) RefreshKey(key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for c, q := range qs.queues {
		if c.Key == key {
			q.wake()
		}
	}
}

// wake makes the first waiter ask now. The mutex is held.
func (q *queue) wake() {
	q.state = state{}
	s := q.first()
	s.woken = true // it asks again even if it asks now
	select {
	case s.waiter.refresh <- struct{}{}:
	default:
	}
}

// jitter returns what is added to the end of a window, so that not all processes ask at once: up to a fiftieth of the
// scale, and up to 10 ms.
func jitter(scale time.Duration) time.Duration {
	return rand.N(max(1, min(scale/50, 10*time.Millisecond)))
}
