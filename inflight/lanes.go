package inflight

import (
	"cmp"
	"errors"
	"runtime"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

const (
	// maxClaims is how many keys share an exchange. Those who want something while one is in flight share the next one,
	// which takes the store less time than several.
	maxClaims = 64
	// manyClaims is how many keys that wait for the next exchange have it at once, as a second one: then the store
	// works while this process reads answers.
	manyClaims = maxClaims / 2
	// closeTimeout bounds how long Close tells the store.
	closeTimeout = time.Second
)

// laneID tells lanes apart. Pumps share exchanges if the same part of the store keeps their keys, so that one that is
// away stops no others, and if they have the same lease, so that a short one does not cut the time of others.
type laneID struct {
	part  string
	lease time.Duration
}

// lane is pumps that share exchanges.
type lane struct {
	id      laneID
	queue   []*pump
	workers int // up to two
}

// queue queues a pump for its next exchange. The mutex is held.
func (l *Limiter) queue(p *pump) {
	p.phase = queued
	k := laneID{l.store.Part(p.claim.Key), p.claim.Lease}
	at := l.lanes[k]
	if at == nil {
		at = &lane{id: k}
		l.lanes[k] = at
	}
	at.queue = append(at.queue, p)
	if at.workers == 0 || at.workers == 1 && len(at.queue) >= manyClaims {
		at.workers++
		go l.work(at)
	}
}

// work makes exchanges as long as pumps are queued.
func (l *Limiter) work(at *lane) {
	for {
		pumps, claims := l.begin(at)
		if len(pumps) == 0 {
			return
		}
		places := make([]window.Places, len(claims))
		err := l.store.Exchange(l.ctx, claims, places)
		l.finish(at, pumps, places, err)
		runtime.Gosched() // those who were answered may want more: they share the next exchange
	}
}

// begin begins the exchanges of pumps that are queued. Without any, the worker ends.
func (l *Limiter) begin(at *lane) (pumps []*pump, claims []window.Claim) {
	l.mu.Lock()
	defer l.unlock()
	now := l.now()
	for len(at.queue) > 0 && len(pumps) < maxClaims {
		p := at.queue[0]
		at.queue = at.queue[1:]
		if p.phase == gone {
			l.spare.Put(p)
			continue
		}
		p.phase = owing
		if !p.idle(now) {
			l.seq++
			pumps = append(pumps, p)
			claims = append(claims, *p.begin(now, l.seq))
		}
		l.update(p, now)
	}
	if len(pumps) > 0 {
		return pumps, claims
	}
	at.workers--
	if at.workers == 0 {
		delete(l.lanes, at.id)
	}
	return nil, nil
}

// finish ends exchanges.
func (l *Limiter) finish(at *lane, pumps []*pump, places []window.Places, err error) {
	l.mu.Lock()
	defer l.unlock()
	now := l.now()
	for i, p := range pumps {
		a := &places[i]
		err := cmp.Or(err, a.Err)
		switch {
		case p.phase == gone:
			continue
		case err == nil:
			if p.answered(now, a) {
				l.noticed(now, p.claim.Lease, a.Grace)
			}
			l.toldTo(a.DataSet, at.id, now)
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

// failureOf returns what an error says of the store.
func (l *Limiter) failureOf(at *lane, err error) failure {
	switch {
	case errors.Is(err, outage.ErrStill):
		return unanswered
	case outage.IsMistake(err) || errors.Is(err, window.ErrClosed):
		return mistaken
	case l.store.Err(at.id.part, at.id.lease) != nil, !outage.IsAway(err) && !errors.Is(err, window.ErrOverloaded):
		return away
	}
	return failing
}
