package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

// lineShare is the part of a lease after which a process that has not claimed loses its position in line.
const lineShare = 4

// Exchange makes a claim, which is valid, and returns its answer.
func (l *Ledger) Exchange(claim *window.Claim) window.Places {
	p, wake := l.Claim(claim)
	if wake != nil {
		wake()
	}
	return p
}

// Claim is Exchange for those who hold a mutex: they call what it returns, unless that is nil, when it is unlocked.
func (l *Ledger) Claim(claim *window.Claim) (p window.Places, wake func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	c, err := l.count(claim, now)
	if err != nil {
		return window.Places{Err: err}, nil
	}
	before, head := c.sum, c.first()
	c.expire(now)
	p.DataSet = l.dataSet
	if claim.Process != "" {
		x := exchange{count: c, ledger: l, claim: claim, now: now}
		x.make(&p, max(l.birth+claim.Lease-now, 0))
	}
	// Only what has changed what is free wakes the first in line, who has asked before.
	if c.sum < before || c.first() != head {
		wake = c.wake(claim.Process)
	}
	p.Used = c.sum
	p.Waiting = c.waiting()
	for _, e := range c.entries {
		if e.held > 0 {
			p.Next = min(cmp.Or(p.Next, e.end-now), e.end-now)
		}
	}
	if len(c.entries) == 0 {
		delete(l.counts, id{claim.Key, claim.Name})
	}
	return p, wake
}

// exchange is a claim on a count.
type exchange struct {
	*count
	ledger *Ledger
	claim  *window.Claim
	now    time.Duration
}

// make makes the claim. Strict ones are granted nothing for so long.
func (x *exchange) make(p *window.Places, grace time.Duration) {
	e := entry{process: x.claim.Process}
	at := x.index(e.process)
	known, position := uint64(0), uint64(0)
	if at >= 0 {
		if x.claim.Seq <= x.entries[at].seq {
			p.Late = true
			return
		}
		known, position = x.entries[at].held, x.entries[at].limit
	}
	if x.claim.Strict {
		p.Grace = grace
	}
	e.held = x.register(p, known)
	granted := x.decide(p, &e)
	e.held += granted
	if e.held > 0 {
		e.seq = x.claim.Seq
		e.end = x.now + x.claim.Lease
	}
	// It goes to the end of the line if something was granted, and to another position if its first want has another
	// Max.
	stays := at >= 0 && (e.waiting == 0 || granted == 0 && e.limit == position)
	if at >= 0 {
		x.entries = slices.Delete(x.entries, at, at+1)
	}
	if !stays {
		at = len(x.entries)
		for at > 0 && x.entries[at-1].limit < e.limit {
			at--
		}
	}
	if !over(e) {
		x.entries = slices.Insert(x.entries, at, e)
	}
}

// register counts what the process holds. What the store does not know of was lost with its data. It is believed,
// unless the claim is strict, and there is no room.
func (x *exchange) register(p *window.Places, known uint64) (held uint64) {
	if x.sum == 0 {
		x.limit = 0
	}
	held = x.claim.Held
	limit := max(x.claim.HeldMax, x.limit)
	others := x.sum - known
	switch {
	case held > known && x.claim.Strict && (held > limit || others > limit-held):
		p.Lost, held = true, 0
	case held > known:
		p.Forgotten = true
	}
	if held > 0 {
		x.limit = limit
	}
	x.sum = others + held
	return held
}

// decide decides the wants, and notes in the entry of the process which of them wait. It returns how many places are
// granted. Those for the first in line are left, unless that is the process itself, or has a smaller Max.
func (x *exchange) decide(p *window.Places, e *entry) (granted uint64) {
	head := x.head()
	for i, w := range x.claim.Wants {
		reserved := uint64(0)
		if head != nil && head.process != e.process && head.limit >= w.Max {
			reserved = head.n
		}
		switch {
		case p.Grace == 0 && e.waiting == 0 && x.fits(w.N+reserved, w.Max):
			granted += w.N
			x.sum += w.N
			x.limit = max(x.limit, w.Max)
			if p.Tokens == nil {
				p.Tokens = make([]uint64, len(x.claim.Wants))
			}
			x.ledger.token++
			p.Tokens[i] = x.ledger.token
		case w.Wait:
			if e.waiting == 0 {
				e.n = w.N
				e.limit = w.Max
				e.wake = x.claim.Wake
				e.lineEnd = x.now + x.claim.Lease/lineShare
			}
			e.waiting++
		}
	}
	return granted
}
