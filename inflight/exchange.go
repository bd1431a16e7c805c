package inflight

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

const (
	// maxClaims is how many keys share an exchange: those who want something while one is in flight share the next one,
	// which takes the store less time than several. On Redis, that is a script.
	maxClaims = 128
	// manyClaims is how many keys that wait for the next exchange have it at once, as a second one: then the store
	// works while this process reads answers.
	manyClaims = maxClaims / 4
	// closeTimeout bounds how long Close tells the store.
	closeTimeout = time.Second
)

// id identifies a pump.
type id struct{ key, name string }

// newPump adds a pump. The mutex is held.
func (l *Limiter) newPump(k id, lease time.Duration) *pump {
	if l.memory != nil {
		lease = ledger.Forever
	}
	p, _ := l.spare.Get().(*pump)
	if p == nil {
		p = &pump{callers: callers{options: &l.options, changed: l.changed, holds: map[*Hold]struct{}{}}}
		p.claim.Process = l.process
		p.claim.Wake = func() { l.do(p, p.again) }
		p.timer = time.AfterFunc(never, func() { l.do(p, func() { p.timerAt = never }) })
	}
	p.open(k.key, k.name, lease)
	l.byID[k] = p
	return p
}

// update does what the state of a pump needs: it begins an exchange, or queues it for one, sets its timer, or forgets
// it. The mutex is held.
func (l *Limiter) update(p *pump, now time.Duration) {
	if p.phase == gone {
		return
	}
	p.tick(now)
	if l.closed {
		p.lateUntil = 0 // what is claimed late ends with its lease
	}
	for l.memory != nil && p.exchangeAt() <= now {
		l.exchangeInMemory(p, now)
	}
	if p.idle(now) {
		l.forget(p)
		return
	}
	if p.exchangeAt() <= now {
		l.enqueue(p)
	}
	// A timer that goes off sooner is left as it is: most are set again before.
	if at := p.due(); at < p.timerAt {
		p.timerAt = at
		p.timer.Reset(at - now)
	}
}

// exchangeInMemory makes an exchange with the memory of the process, which does not wait. The mutex is held.
func (l *Limiter) exchangeInMemory(p *pump, now time.Duration) {
	l.seq++
	a, wake := l.memory.Exchange(p.begin(now, l.seq))
	if wake != nil {
		l.later = append(l.later, wake)
	}
	if a.Err != nil {
		p.failed(now, a.Err, mistaken)
	} else {
		p.answered(now, &a)
	}
}

// forget forgets a pump, which another key can have then. What still refers to it updates that one in vain. The mutex
// is held.
func (l *Limiter) forget(p *pump) {
	if p.phase == queued {
		p.queue.Remove(p.position)
	}
	p.phase = gone
	p.timer.Stop()
	delete(l.byID, id{p.claim.Key, p.claim.Name})
	l.spare.Put(p)
}

// lane is the pumps that share exchanges. The same part of the store keeps their keys, so that one that is away stops
// no others, and they have the same lease, so that a short one does not cut the time of others.
type lane struct {
	part  string
	lease time.Duration
}

// laneQueue is the pumps of a lane that are queued, in order. As long as there are any, workers make their exchanges.
type laneQueue struct {
	list.List
	workers int // goroutines: one, or two
}

// enqueue queues a pump for its next exchange. The mutex is held.
func (l *Limiter) enqueue(p *pump) {
	at := lane{l.store.Part(p.claim.Key), p.claim.Lease}
	if l.queues[at] == nil {
		l.queues[at] = &laneQueue{}
	}
	p.phase = queued
	p.queue = l.queues[at]
	p.position = p.queue.PushBack(p)
	if p.queue.workers == 0 || p.queue.workers == 1 && p.queue.Len() >= manyClaims {
		p.queue.workers++
		go l.work(at)
	}
}

// work makes exchanges as long as pumps are queued.
func (l *Limiter) work(at lane) {
	for {
		pumps, claims := l.beginQueued(at)
		if len(pumps) == 0 {
			return
		}
		places := make([]window.Places, len(claims))
		err := l.store.Exchange(l.ctx, claims, places)
		l.finish(at, pumps, places, err)
		for range 2 { // those who were answered may want more: they share the next exchange
			runtime.Gosched()
		}
	}
}

// beginQueued begins the exchanges of pumps that are queued. Without any, the worker ends, and with the last one the
// queue.
func (l *Limiter) beginQueued(at lane) (pumps []*pump, claims []window.Claim) {
	l.mu.Lock()
	defer l.unlock()
	now := l.now()
	q := l.queues[at]
	for q.Len() > 0 && len(pumps) < maxClaims {
		p := q.Remove(q.Front()).(*pump)
		l.seq++
		pumps = append(pumps, p)
		claims = append(claims, *p.begin(now, l.seq))
	}
	if len(pumps) == 0 {
		q.workers--
		if q.workers == 0 {
			delete(l.queues, at)
		}
	}
	return pumps, claims
}

// finish ends exchanges.
func (l *Limiter) finish(at lane, pumps []*pump, places []window.Places, err error) {
	l.mu.Lock()
	defer l.unlock()
	now := l.now()
	for i, p := range pumps {
		err := cmp.Or(err, places[i].Err)
		switch {
		case p.phase == gone: // with the Limiter
		case err == nil:
			if p.answered(now, &places[i]) {
				l.noticed(now, p.claim.Lease, places[i].Grace)
			}
			l.toldTo(places[i].DataSet, at, now)
		default:
			f := l.failureOf(at, err)
			p.failed(now, err, f)
			if l.closed && f >= away { // its lease frees its places
				l.forget(p)
			}
		}
		l.update(p, now)
	}
}

// notAsked is why an exchange is not made while the circuit is open.
type notAsked struct{ error }

// Unwrap returns why it is open.
func (e notAsked) Unwrap() error { return e.error }

// failureOf returns what an error says of the store.
func (l *Limiter) failureOf(at lane, err error) failure {
	switch {
	case errors.As(err, new(notAsked)):
		return unasked
	case errors.Is(err, outage.ErrStill):
		return unanswered
	case outage.IsMistake(err) || errors.Is(err, window.ErrClosed):
		return mistaken
	case l.store.Err(at.part, at.lease) != nil, !outage.IsAway(err) && !errors.Is(err, window.ErrOverloaded):
		return away
	}
	return failing
}

// NotYetError says that no places are granted yet, as the store is new, or has lost its data: see [WithStrict]. It
// matches throttr.ErrUnavailable.
type NotYetError struct {
	RetryAfter time.Duration // what is left of the wait
}

// Error says for how long nothing is granted.
func (e *NotYetError) Error() string {
	return fmt.Sprintf("inflight: the store is new, or has lost its data: no places are granted for %v",
		e.RetryAfter.Round(time.Millisecond))
}

// Unwrap returns [window.ErrUnavailable].
func (e *NotYetError) Unwrap() error { return window.ErrUnavailable }

// noticed counts a loss of data, logs it, and tells the observer. Nothing is granted for grace. What is noticed within
// a lease is one loss. The mutex is held.
func (l *Limiter) noticed(now, lease, grace time.Duration) {
	if now >= l.lossUntil {
		l.stats.Losses++
		l.later = append(l.later, func() {
			if grace > 0 {
				l.outages.Log().Warn("throttr: the store is new, or has lost its data: "+
					"no places in flight are granted yet", "for", grace.Round(time.Millisecond))
			} else {
				l.outages.Log().Warn("throttr: the store has lost its data: more places in flight than Max may be held")
			}
			l.observe(Event{Kind: DataLost})
		})
	}
	l.lossUntil = now + lease // also of slots of a cluster that find out later
}

// toldTo notes which data set a lane has told something. If that is another one than before, all pumps tell it at once
// what they hold. The slots of a cluster are data sets of their own: there, each pump finds out with its next renewal.
// The mutex is held.
func (l *Limiter) toldTo(dataSet uint64, at lane, now time.Duration) {
	if at.part != "" || dataSet == 0 || dataSet == l.dataSet || now < l.renewAt {
		return
	}
	if l.dataSet != 0 {
		l.renewAt = now + at.lease/8 // a proxy may be to several servers, whose answers differ
		for _, other := range l.byID {
			other.again()
			l.update(other, now)
		}
	}
	l.dataSet = dataSet
}
