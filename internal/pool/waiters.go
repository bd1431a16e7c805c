package pool

import "sync/atomic"

// waiters are callers that wait for a connection, or for a stream to end.
type waiters struct {
	n   atomic.Int64
	max int64
}

// enter counts a caller that is about to wait. It returns false if as many wait already as are
// allowed to.
func (w *waiters) enter() bool {
	if w.n.Add(1) > w.max {
		w.n.Add(-1)
		return false
	}
	return true
}

func (w *waiters) leave() { w.n.Add(-1) }
