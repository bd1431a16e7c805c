package inflight

import (
	"time"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/window"
)

// id identifies a pump.
type id struct{ key, name string }

// ask has a pump decide what a Hold wants. It returns a channel that is closed when that is decided, or the decision.
func (l *Limiter) ask(h *Hold) (decided <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.unlock()
	k := id{h.key, h.limit.Name}
	p := l.byID[k]
	switch {
	case l.closed:
		return nil, window.ErrClosed
	case l.stats.Waiting >= l.maxWaiting:
		return nil, window.ErrOverloaded
	case p == nil && len(l.byID) >= l.maxKeys:
		return nil, window.ErrFull
	case p == nil:
		p = l.newPump(k, h.limit.Lease)
	}
	h.pump = p
	p.add(h)
	l.update(p, l.now())
	if h.undecided() {
		h.ready = make(chan struct{})
		l.stats.Waiting++
	}
	return h.ready, h.err
}

// newPump adds a pump. The mutex is held.
func (l *Limiter) newPump(k id, lease time.Duration) *pump {
	if l.memory != nil {
		lease = ledger.Forever
	}
	p, _ := l.spare.Get().(*pump)
	if p == nil {
		p = &pump{callers: callers{rules: l.rules, changed: l.changed}}
		p.claim.Process = l.process
		p.claim.Wake = func() { l.do(p, p.again) }
	}
	p.open(k.key, k.name, lease)
	l.byID[k] = p
	return p
}

// release gives back what a Hold holds, or ends its wait.
func (l *Limiter) release(h *Hold) { l.do(h.pump, func() { h.pump.cancel(h) }) }

// do does something with a pump, and updates it.
func (l *Limiter) do(p *pump, f func()) {
	l.mu.Lock()
	defer l.unlock()
	f()
	l.update(p, l.now())
}

// unlock unlocks the mutex, and does what is to be done then.
func (l *Limiter) unlock() {
	later := l.later
	l.later = nil
	l.mu.Unlock()
	for _, do := range later {
		do()
	}
}

// update does what the state of a pump needs: it begins an exchange, or queues it for one, sets its timer, or forgets
// it. The mutex is held.
func (l *Limiter) update(p *pump, now time.Duration) {
	if p.phase == gone {
		return
	}
	p.tick(now)
	for l.memory != nil && p.exchangeAt() <= now {
		l.exchange(p, now)
	}
	if p.idle(now) {
		l.forget(p)
		return
	}
	if p.exchangeAt() <= now {
		l.queue(p)
	}
	l.setTimer(p, p.due(), now)
}

// exchange makes an exchange in memory, which does not wait. The mutex is held.
func (l *Limiter) exchange(p *pump, now time.Duration) {
	l.seq++
	a, wake := l.memory.Claim(p.begin(now, l.seq))
	if wake != nil {
		l.later = append(l.later, wake)
	}
	if a.Err != nil {
		p.failed(now, a.Err, mistaken)
	} else {
		p.answered(now, &a)
	}
}

// changed tells that a Hold is decided, or does not hold or want anything any more. The mutex is held.
func (l *Limiter) changed(h *Hold) {
	if h.ready != nil {
		close(h.ready)
		h.ready = nil
		l.stats.Waiting--
	}
	if h.state == lost {
		l.stats.Lost += h.want.N
	}
	if h.state > held {
		l.ended(h)
	}
}

// setTimer has a pump updated at a time. A timer that goes off sooner is left as it is: most are set again before.
// The mutex is held.
func (l *Limiter) setTimer(p *pump, at, now time.Duration) {
	switch {
	case at >= p.timerAt:
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(at-now, func() { l.do(p, func() { p.timerAt = never }) })
	default:
		p.timer.Reset(at - now)
	}
	p.timerAt = at
}

// forget forgets a pump, which another key can have then, or, if it is queued, when its lane has met it. What still
// refers to it updates that one in vain. The mutex is held.
func (l *Limiter) forget(p *pump) {
	free := p.phase != queued
	p.phase = gone
	delete(l.byID, id{p.claim.Key, p.claim.Name})
	if p.timer != nil {
		p.timer.Stop()
	}
	if free {
		l.spare.Put(p)
	}
	if l.closed && len(l.byID) == 0 {
		close(l.drained)
	}
}
