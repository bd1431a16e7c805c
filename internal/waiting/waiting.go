// Package waiting lets callers wait in line for a share of windows: first come, first served, for
// each count. It knows no store: a caller asks the store when its turn has come.
//
//	queues := waiting.New(1024)
//	err := queues.Wait(ctx, waiting.Turn{Count: count, Limit: 10, N: 1}, take)
//
// Only the first caller of a queue asks. If it is refused, it waits for the end of the window, and
// asks again in between: somebody may have given back, or reset the window. A caller whose turn
// certainly comes after the deadline of its context fails at once.
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
	At time.Time // when its turn comes at the earliest
}

// Error implements error.
func (e *LateError) Error() string { return "throttr: the wait would exceed the deadline" }

// Count is what a queue is for: a key, and what tells its limits apart.
type Count struct {
	Key       string
	Name      string
	Scale     time.Duration
	Algorithm window.Algorithm
}

// Turn is what a caller waits for.
type Turn struct {
	Count
	Limit uint64
	N     uint64 // at most Limit
}

// Answer is the result of a take.
type Answer struct {
	Granted bool
	Count   uint64        // of the window; with N if granted
	Left    time.Duration // until the window ends; with a rolling algorithm, if not Granted, until it would be
	Early   time.Duration // how much sooner that may be
}

// Queues are the queues of all counts. A queue exists while callers wait.
//
// The mutex guards all queues and their fields.
type Queues struct {
	most   int // callers of a queue
	mu     sync.Mutex
	queues map[Count]*queue
}

// New returns queues of at most the given number of callers each.
func New(most int) *Queues { return &Queues{most: most, queues: map[Count]*queue{}} }

// queue is the callers that wait for a count.
type queue struct {
	waiters list.List // of *waiter, in their order
	asking  *waiter   // whose turn it is: the first one
	state   state
	refresh chan struct{} // holds a value if the first caller should ask now
}

// waiter is a caller that waits.
type waiter struct {
	Turn
	deadline time.Time // zero: none
	// turn is closed when the waiter is the first one, or has been removed because of err.
	turn chan struct{}
	err  error
}

// Wait returns nil after take has been granted, or its error. Take is called by one caller of a
// queue at a time, in the order of calls of Wait. Other errors are [ErrFull], a [*LateError], and
// that of ctx.
func (qs *Queues) Wait(ctx context.Context, turn Turn, take func(context.Context) (Answer, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &waiter{Turn: turn, turn: make(chan struct{})}
	w.deadline, _ = ctx.Deadline()
	q, place, err := qs.join(w)
	if err != nil {
		return err
	}
	select {
	case <-w.turn:
		if w.err != nil {
			return w.err
		}
	case <-ctx.Done():
		qs.leave(q, place)
		return ctx.Err()
	}
	defer qs.leave(q, place)
	return qs.ask(ctx, q, w, take)
}

// join puts a waiter at the end of its queue.
func (qs *Queues) join(w *waiter) (*queue, *list.Element, error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	k := w.Count
	q := qs.queues[k]
	if q == nil {
		q = &queue{refresh: make(chan struct{}, 1)}
		qs.queues[k] = q
	}
	if q.waiters.Len() >= qs.most {
		return nil, nil, ErrFull
	}
	place := q.waiters.PushBack(w)
	if qs.pass(q, k); q.asking != w {
		q.failLate(time.Now())
	}
	return q, place, w.err
}

// pass gives the turn to the first waiter, or removes the queue if there is none. The mutex is
// held.
func (qs *Queues) pass(q *queue, k Count) {
	first := q.waiters.Front()
	if first == nil {
		delete(qs.queues, k)
		return
	}
	if w := first.Value.(*waiter); w != q.asking {
		q.asking = w
		close(w.turn)
	}
}

// leave removes a waiter, unless it has been removed because of its err.
func (qs *Queues) leave(q *queue, place *list.Element) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w := place.Value.(*waiter); w.err == nil {
		q.waiters.Remove(place)
		qs.pass(q, w.Count)
	}
}

// ask asks until the first waiter of a queue is granted its take, or fails.
func (qs *Queues) ask(ctx context.Context, q *queue, w *waiter, take func(context.Context) (Answer, error)) error {
	for {
		pause, err := qs.next(q, w)
		if err != nil {
			return err
		}
		if pause > 0 {
			if err := q.sleep(ctx, pause); err != nil {
				return err
			}
		}
		answer, err := take(ctx)
		if err != nil {
			return err
		}
		qs.mu.Lock()
		q.state = after(answer, w.Turn, time.Now())
		qs.mu.Unlock()
		if answer.Granted {
			return nil
		}
	}
}

// next returns for how long the first waiter should wait before it asks.
func (qs *Queues) next(q *queue, w *waiter) (time.Duration, error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	now := time.Now()
	l := q.state.line(now)
	if at := l.add(w.Turn); w.late(at) {
		w.err = &LateError{At: at}
		q.waiters.Remove(q.waiters.Front())
		qs.pass(q, w.Count)
		return 0, w.err
	}
	q.failLate(now)
	return q.state.pause(w.Turn, now), nil
}

// sleep sleeps for a time, up to a refresh or the end of ctx.
func (q *queue) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.refresh:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// late reports whether a turn at the given time is after the deadline.
func (w *waiter) late(at time.Time) bool { return !w.deadline.IsZero() && at.After(w.deadline) }

// failLate removes the waiters that can't have their turn before their deadlines, but not the first
// one, which may be asking. The mutex is held.
func (q *queue) failLate(now time.Time) {
	l := q.state.line(now)
	first := q.waiters.Front()
	l.add(first.Value.(*waiter).Turn)
	for place := first.Next(); place != nil; {
		w, next, before := place.Value.(*waiter), place.Next(), l
		if at := l.add(w.Turn); w.late(at) {
			l = before
			w.err = &LateError{At: at}
			q.waiters.Remove(place)
			close(w.turn)
		}
		place = next
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
	select {
	case q.refresh <- struct{}{}:
	default:
	}
}

// jitter is added to the end of a window, so that not all processes ask at once.
func jitter(scale time.Duration) time.Duration {
	return rand.N(max(1, min(scale/50, 10*time.Millisecond)))
}
