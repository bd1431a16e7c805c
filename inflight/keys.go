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
	id
	dataSet uint64 // of its part of the store, when it was told last
	queued  bool
	ended   bool // it is forgotten
	timer   *time.Timer
	timerAt time.Duration // when the timer fires; never if it does not
	awake   func()
}

// ask adds a want of a key and name.
func (l *Limiter) ask(w *want, k id, lease time.Duration) error {
	l.mu.Lock()
	defer l.unlock()
	e := l.byID[k]
	switch {
	case l.closed:
		return window.ErrClosed
	case l.waiting >= l.maxWaiting:
		return window.ErrOverloaded
	case e == nil && len(l.byID) >= l.maxKeys:
		return window.ErrFull
	case e == nil:
		e = l.newPump(k, lease)
	}
	w.pump = e
	l.waiting++
	if w.max == window.Unlimited && l.memory == nil {
		e.grantApart(w)
	} else {
		e.add(w)
	}
	l.update(e)
	return nil
}

// newPump adds a pump. The mutex is held.
func (l *Limiter) newPump(k id, lease time.Duration) *keyPump {
	if l.memory != nil {
		lease = ledger.Forever
	}
	e := &keyPump{id: k, timerAt: never}
	e.lease = lease
	e.rules = l.rules
	e.at = never
	e.awake = func() {
		l.mu.Lock()
		defer l.unlock()
		e.wake()
		l.update(e)
	}
	l.byID[k] = e
	return e
}

// release gives back what a want holds, or ends it.
func (l *Limiter) release(w *want) {
	l.mu.Lock()
	defer l.unlock()
	if w.state == waiting || w.state == inLine {
		l.waiting--
	}
	w.pump.cancel(w)
	l.update(w.pump)
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
func (l *Limiter) update(e *keyPump) {
	if e.ended {
		return
	}
	now := l.now()
	e.tick(now)
	l.tell(e)
	switch {
	case e.idle(now):
		l.forget(e)
	case e.sendAt() <= now && l.memory != nil:
		l.exchange(e, now)
	case e.sendAt() <= now:
		l.queue(e)
		l.setTimer(e, e.loseAt(), now)
	default:
		l.setTimer(e, e.due(), now)
	}
}

// exchange makes the exchange of a pump in memory, which does not wait. The mutex is held.
func (l *Limiter) exchange(e *keyPump, now time.Duration) {
	c := l.claim(e, now)
	a, wake := l.memory.Claim(&c)
	if wake != nil {
		l.later = append(l.later, wake)
	}
	if a.Err != nil {
		e.failed(now, a.Err, mistaken)
	} else {
		e.answered(now, &a)
	}
	l.update(e)
}

// claim begins the exchange of a pump. The mutex is held.
func (l *Limiter) claim(e *keyPump, now time.Duration) window.Claim {
	c := e.claim(now)
	l.seq++
	c.Key = e.key
	c.Name = e.name
	c.Process = l.process
	c.Seq = l.seq
	if len(c.Wants) > 0 {
		c.Wake = e.awake
	}
	return c
}

// tell tells what a pump has decided. The mutex is held.
func (l *Limiter) tell(e *keyPump) {
	for _, d := range e.decided {
		if d.state != gone {
			l.waiting--
			d.want.ready <- d // it has room
			continue
		}
		l.later = append(l.later, func() {
			l.lost.Add(d.want.n)
			d.want.hold.end(lost)
		})
	}
	clear(e.decided)
	e.decided = e.decided[:0]
}

// setTimer has a pump updated at a time, and perhaps before. The mutex is held.
func (l *Limiter) setTimer(e *keyPump, at, now time.Duration) {
	switch {
	case at >= e.timerAt:
		return
	case e.timer == nil:
		e.timer = time.AfterFunc(at-now, func() {
			l.mu.Lock()
			defer l.unlock()
			e.timerAt = never
			l.update(e)
		})
	default:
		e.timer.Reset(at - now)
	}
	e.timerAt = at
}

// forget forgets a pump. The mutex is held.
func (l *Limiter) forget(e *keyPump) {
	if e.ended {
		return
	}
	e.ended = true
	delete(l.byID, e.id)
	if e.timer != nil {
		e.timer.Stop()
	}
	if l.closed && len(l.byID) == 0 {
		l.drain()
	}
}
