package inflight

import (
	"time"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/window"
)

// id identifies a pump.
type id struct{ key, name string }

// keyPump is the pump of a key and name.
type keyPump struct {
	pump
	queued  bool
	ended   bool        // it is forgotten
	timer   *time.Timer // or nil
	timerAt time.Duration
}

// ask adds a want of a key and name. It returns a channel that is closed when the want is decided, or nil if it is.
func (l *Limiter) ask(w *want, k id, lease time.Duration) (decided <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.unlock()
	e := l.byID[k]
	switch {
	case l.closed:
		return nil, window.ErrClosed
	case l.waiting >= l.maxWaiting:
		return nil, window.ErrOverloaded
	case e == nil && len(l.byID) >= l.maxKeys:
		return nil, window.ErrFull
	case e == nil:
		e = l.newPump(k, lease)
	}
	w.pump = e
	e.add(w)
	l.update(e, l.now())
	if w.state == waiting || w.state == inLine {
		w.ready = make(chan struct{})
		l.waiting++
	}
	return w.ready, nil
}

// newPump adds a pump. The mutex is held.
func (l *Limiter) newPump(k id, lease time.Duration) *keyPump {
	if l.memory != nil {
		lease = ledger.Forever
	}
	c := window.Claim{Key: k.key, Name: k.name, Process: l.process, Lease: lease}
	e := &keyPump{pump: newPump(c, l.rules, l.changed), timerAt: never}
	e.claim.Wake = func() { l.do(e, e.again) }
	l.byID[k] = e
	return e
}

// release gives back what a Hold holds, or ends its wait.
func (l *Limiter) release(h *Hold) {
	l.mu.Lock()
	defer l.unlock()
	e := h.want.pump
	e.cancel(&h.want)
	l.update(e, l.now())
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

// update does what the state of a pump needs: it queues it, sets its timer, or forgets it. The mutex is held.
func (l *Limiter) update(e *keyPump, now time.Duration) {
	if e.ended {
		return
	}
	e.tick(now)
	for l.memory != nil && e.sendAt() <= now {
		l.exchange(e, now)
	}
	switch {
	case e.idle(now):
		l.forget(e)
	case e.sendAt() <= now:
		l.queue(e)
		l.setTimer(e, e.loseAt(), now)
	default:
		l.setTimer(e, e.due(), now)
	}
}

// exchange makes the exchange of a pump in memory, which does not wait. The mutex is held.
func (l *Limiter) exchange(e *keyPump, now time.Duration) {
	l.seq++
	a, wake := l.memory.Claim(e.begin(now, l.seq))
	if wake != nil {
		l.later = append(l.later, wake)
	}
	if a.Err != nil {
		e.failed(now, a.Err, mistaken)
	} else {
		e.answered(now, &a)
	}
}

// changed tells that a want is decided, or holds nothing any more. The mutex is held.
func (l *Limiter) changed(w *want) {
	if w.ready != nil {
		close(w.ready)
		w.ready = nil
		l.waiting--
	}
	if w.state == lost {
		l.lost += w.N
	}
	if w.state > held {
		l.ended(w.hold)
	}
}

// setTimer has a pump updated at a time. The mutex is held.
func (l *Limiter) setTimer(e *keyPump, at, now time.Duration) {
	at = min(at, never)
	switch {
	case at == e.timerAt: // as most often while an exchange is in flight
		return
	case e.timer == nil:
		e.timer = time.AfterFunc(at-now, func() { l.do(e, func() { e.timerAt = never }) })
	default:
		e.timer.Reset(at - now)
	}
	e.timerAt = at
}

// do does something with a pump, and updates it.
func (l *Limiter) do(e *keyPump, f func()) {
	l.mu.Lock()
	defer l.unlock()
	f()
	l.update(e, l.now())
}

// forget forgets a pump. The mutex is held.
func (l *Limiter) forget(e *keyPump) {
	if e.ended {
		return
	}
	e.ended = true
	delete(l.byID, id{e.claim.Key, e.claim.Name})
	if e.timer != nil {
		e.timer.Stop()
	}
	if l.closed && len(l.byID) == 0 {
		close(l.drained)
	}
}
