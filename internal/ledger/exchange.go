package ledger

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// Exchange makes a claim, which is valid, and returns its answer.
func (l *Ledger) Exchange(claim *window.Claim) window.Places {
	k := id{claim.Key, claim.Name}
	hash, s := l.hash(k)
	s.mu.Lock()
	p, wake := l.exchange(s, hash, k, claim)
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
	return p
}

// exchange is Exchange with the mutex held. It also returns what wakes the process that is first in line.
func (l *Ledger) exchange(s *shard, hash uint64, k id, claim *window.Claim) (p window.Places, wake func()) {
	c, now := s.find(hash, k), l.now()
	if c == nil && claim.Held == 0 && len(claim.Wants) == 0 {
		return p, nil
	}
	if c == nil {
		if c, p.Err = l.count(s, hash, k); p.Err != nil {
			return p, nil
		}
	}
	if c.expire(now); claim.Process != "" {
		x := exchange{c, claim, now, now < l.born+claim.Lease}
		if x.make(&p); x.grace {
			p.Next = l.born + claim.Lease - now
		} else if len(c.processes) > 0 {
			p.Next = c.firstEnd - now
		}
		wake = c.serve(now)
	}
	p.Used, p.Waiting = c.sum, c.line.waiting(now)
	return p, wake
}

// exchange is a claim on a count. In the grace after the ledger has been born, nothing is granted.
type exchange struct {
	*count
	claim *window.Claim
	now   time.Duration
	grace bool
}

// make makes the claim.
func (x *exchange) make(p *window.Places) {
	e := x.processes[x.claim.Process] // its lease is not over
	if x.claim.Seq <= e.seq {
		p.Late = true
		return
	}
	if x.sum == 0 {
		x.limit = 0
	}
	held, limit := x.claim.Held, max(x.claim.HeldMax, x.limit)
	switch {
	case held > e.held && (held > limit || x.sum-e.held > limit-held):
		p.Lost, held = true, 0
	case held > 0:
		x.limit = limit
	}
	x.sum += held - e.held
	granted, first, waiting := x.decide(p)
	x.sum += granted
	if held += granted; held == 0 {
		delete(x.processes, x.claim.Process)
	} else {
		if x.processes == nil {
			x.processes = map[string]holding{}
		}
		end := x.now + x.claim.Lease
		x.processes[x.claim.Process] = holding{held, x.claim.Seq, end}
		x.firstEnd = min(x.firstEnd, end)
	}
	x.queue(granted > 0, first, waiting)
}

// decide decides the wants. It returns how many places are granted, the first want that waits, and how many
// do.
func (x *exchange) decide(p *window.Places) (granted uint64, first *window.Want, waiting uint64) {
	reserved := x.line.reserved(x.now, x.claim.Process)
	for i := range x.claim.Wants {
		w := &x.claim.Wants[i]
		if !x.grace && first == nil && x.fits(w.N+granted+reserved, w.Max) {
			granted += w.N
			x.limit = max(x.limit, w.Max)
			if p.Tokens == nil {
				p.Tokens = make([]uint64, len(x.claim.Wants))
			}
			x.shard.token++
			p.Tokens[i] = x.shard.token
			continue
		}
		if w.Wait {
			if waiting++; first == nil {
				first = w
			}
		}
	}
	return granted, first, waiting
}

// queue keeps the process in line as long as wants of it wait.
func (x *exchange) queue(granted bool, first *window.Want, waiting uint64) {
	w := x.line.find(x.claim.Process)
	if w != nil && (first == nil || granted || w.end <= x.now) {
		x.line.remove(w)
		w = nil
	}
	if first == nil {
		return
	}
	if w == nil {
		w = &waiter{process: x.claim.Process}
		x.line.append(w)
	}
	w.n, w.limit, w.waiting, w.wake, w.woken = first.N, first.Max, waiting, x.claim.Wake, false
	w.end = x.now + x.claim.Lease/lineShare
}
