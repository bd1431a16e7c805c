package inflight

import (
	"container/heap"
	"time"
)

// timers is a heap of pumps by the time at which they have something to do.
type timers []*keyPump

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].wakeAt < t[j].wakeAt }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements [heap.Interface].
func (t *timers) Push(x any) {
	e := x.(*keyPump)
	e.index = len(*t)
	*t = append(*t, e)
}

// Pop implements [heap.Interface].
func (t *timers) Pop() any {
	old := *t
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	e.index = -1
	return e
}

// set sets the time of a pump; never removes it.
func (t *timers) set(e *keyPump, at time.Duration) {
	switch was := e.wakeAt; {
	case at == never && e.index >= 0:
		heap.Remove(t, e.index)
	case at == never:
	case e.index < 0:
		e.wakeAt = at
		heap.Push(t, e)
	case at != was:
		e.wakeAt = at
		heap.Fix(t, e.index)
	}
}

// arm sets the timer to the first time of the heap. The mutex is held.
func (ps *pumps) arm() {
	if len(ps.timers) > 0 && ps.timers[0].wakeAt < ps.timerAt {
		ps.timerAt = ps.timers[0].wakeAt
		ps.timer.Reset(max(ps.timerAt-ps.limiter.now(), 0))
	}
}

// tick updates the pumps that have something to do.
func (ps *pumps) tick() {
	ps.mu.Lock()
	defer ps.unlock()
	if ps.timerAt == 0 {
		return
	}
	ps.timerAt = never
	now := ps.limiter.now()
	for len(ps.timers) > 0 && ps.timers[0].wakeAt <= now {
		e := ps.timers[0]
		ps.timers.set(e, never)
		ps.update(e, now)
	}
	ps.arm()
}
