package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

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
	before := c.sum
	head := c.line.first()
	c.expire(now) // entries, and positions in line
	p.DataSet = l.dataSet
	if claim.Process != "" {
		x := exchange{count: c, ledger: l, claim: claim, now: now}
		x.make(&p, max(l.birth+claim.Lease-now, 0))
	}
	// Only what has changed what is free wakes the first in line, who has asked before.
	if c.sum < before || c.line.first() != head {
		wake = c.wake(claim.Process)
	}
	p.Used = c.sum
	p.Waiting = c.line.waiting()
	for _, e := range c.entries {
		p.Next = min(cmp.Or(p.Next, e.end-now), e.end-now)
	}
	if c.empty() {
		delete(l.counts, id{claim.Key, claim.Name})
	}
	return p, wake
}

// wake returns what wakes the first in line, if there is room for it. It is another one than the process that asks,
// and was not woken since it has asked.
func (c *count) wake(asking string) func() {
	if len(c.line) == 0 {
		return nil
	}
	w := &c.line[0]
	if !c.fits(w.n, w.limit) || w.woken || w.process == asking {
		return nil
	}
	w.woken = true
	return w.wake
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
	known := x.entries[x.claim.Process]
	if x.claim.Seq <= known.seq {
		p.Late = true
		return
	}
	if x.claim.Strict {
		p.Grace = grace
	}
	held := x.register(p, known.held)
	granted, first, waiting := x.decide(p)
	if held += granted; held > 0 {
		x.entries[x.claim.Process] = entry{held, x.claim.Seq, x.now + x.claim.Lease}
	} else {
		delete(x.entries, x.claim.Process)
	}
	x.queue(granted > 0, first, waiting)
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

// decide decides the wants. It returns how many places are granted, the first want that waits, and how many
// do.
func (x *exchange) decide(p *window.Places) (granted uint64, first *window.Want, waiting uint64) {
	for i := range x.claim.Wants {
		w := &x.claim.Wants[i]
		if p.Grace == 0 && first == nil && x.fits(w.N+x.line.reserved(x.claim.Process, w.Max), w.Max) {
			granted += w.N
			x.sum += w.N
			x.limit = max(x.limit, w.Max)
			if len(p.Tokens) == 0 {
				p.Tokens = append(p.Tokens, make([]uint64, len(x.claim.Wants))...)
			}
			x.ledger.token++
			p.Tokens[i] = x.ledger.token
			continue
		}
		if w.Wait {
			first = cmp.Or(first, w)
			waiting++
		}
	}
	return granted, first, waiting
}

// queue keeps the process in line as long as wants of it wait. It goes to the end if something was granted, and to
// another position if its first want has another Max: those with a larger one are first.
func (x *exchange) queue(granted bool, first *window.Want, waiting uint64) {
	at := slices.IndexFunc(x.line, func(w waiter) bool { return w.process == x.claim.Process })
	if at >= 0 && (first == nil || granted || first.Max != x.line[at].limit) {
		x.line = slices.Delete(x.line, at, at+1)
		at = -1
	}
	if first == nil {
		return
	}
	w := waiter{
		process: x.claim.Process, n: first.N, limit: first.Max, waiting: waiting,
		end: x.now + x.claim.Lease/lineShare, wake: x.claim.Wake,
	}
	if at >= 0 {
		x.line[at] = w
		return
	}
	at = len(x.line)
	for at > 0 && x.line[at-1].limit < w.limit {
		at--
	}
	x.line = slices.Insert(x.line, at, w)
}
