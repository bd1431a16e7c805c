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
	places  window.Places // of the last exchange in memory
	dataSet uint64        // of its part of the store, when it was told last
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
	e, _ := l.spare.Get().(*keyPump)
	if e == nil {
		e = new(keyPump)
		e.claim.Process = l.process
		e.claim.Wake = func() { l.do(e, e.again) }
		e.rules = l.rules
	}
	e.reset(lease)
	e.dataSet = 0
	e.ended = false
	e.timerAt = never
	e.claim.Key = k.key
	e.claim.Name = k.name
	l.byID[k] = e
	return e
}

// release gives back what a Hold holds, or ends its wait.
func (l *Limiter) release(h *Hold) {
	l.mu.Lock()
	defer l.unlock()
	w := &h.want
	if w.pump.cancel(w) {
		l.ready(w)
		l.ended(h)
		l.update(w.pump, l.now())
	}
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

// update does what the state of a pump needs: it tells what is decided, queues it, sets its timer, or forgets it. The
// mutex is held.
func (l *Limiter) update(e *keyPump, now time.Duration) {
	if e.ended {
		return
	}
	e.tick(now)
	for l.memory != nil && e.sendAt() <= now {
		l.exchange(e, now)
	}
	l.tell(e)
	switch {
	case !e.queued && e.idle(now):
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
	a := &e.places
	if wake := l.memory.Claim(e.begin(now, l.seq), a); wake != nil {
		l.later = append(l.later, wake)
	}
	if a.Err != nil {
		e.failed(now, a.Err, mistaken)
	} else {
		e.answered(now, a)
	}
}

// ready ends the wait for a decision. The mutex is held.
func (l *Limiter) ready(w *want) {
	if w.ready != nil {
		close(w.ready)
		w.ready = nil
		l.waiting--
	}
}

// tell tells what a pump has decided, and which Holds have ended. The mutex is held.
func (l *Limiter) tell(e *keyPump) {
	for _, w := range e.changed {
		l.ready(w)
		switch w.state {
		case lost:
			l.lost += w.N
			l.ended(w.hold)
		case closed:
			l.ended(w.hold)
		}
	}
	clear(e.changed)
	e.changed = e.changed[:0]
}

// setTimer has a pump updated at a time. The mutex is held.
func (l *Limiter) setTimer(e *keyPump, at, now time.Duration) {
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
	switch {
	case !l.closed:
		l.spare.Put(e)
	case len(l.byID) == 0:
		close(l.drained)
	}
}
