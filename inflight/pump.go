package inflight

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// The parts of a lease. A process must know that its places are lost before the store does.
const (
	renewShare  = 7.0 / 32  // when places are renewed, just before a quarter
	driftShare  = 1.0 / 500 // by which the clocks of process and store may differ, each by half of it
	marginShare = 1.0 / 128 // between the loss of a place and when the store may grant it
	pollShare   = 1.0 / 8   // how often a process in line asks, and how late a claim may reach the store
	keepShare   = 1.0 / 2   // for how long a failure keeps places, if the policy does: longer than until the next one
	maxPoll     = time.Second / 2
	maxLate     = time.Minute           // however long the lease is
	minPause    = 10 * time.Millisecond // between exchanges that fail
	maxPause    = 250 * time.Millisecond
)

// errLate is why an answer is of no use.
var errLate = outage.Error("the answer of the store took longer than the lease")

// never is later than all times of a process, and sooner than any part of [ledger.Forever] is over.
const never = time.Duration(1 << 59)

// pump is what a process holds and wants of a key and name, and the exchanges in which it tells the store all of it,
// one at a time. It knows no clock and no store: time is the monotonic time that is passed to it, which is not
// negative. The mutex of the Limiter guards all of it.
//
//   - Places are held until a lease, less drift and margin, after the send of the last answered exchange. Then they
//     are lost, unless the policy keeps them while exchanges fail, and it was not the process that stood still.
//   - A place that is granted to nobody, because the caller has gone, is given back by the next exchange. If an
//     exchange has failed, its claim may reach the store after the next one: there is another one later.
type pump struct {
	callers
	exchanges
	queue    *laneQueue    // of its lane, if it is queued
	position *list.Element // in it
	timer    *time.Timer   // of the Limiter
	timerAt  time.Duration // when it goes off; never: it is not set
}

// exchanges are what the store was told, and is to be told.
type exchanges struct {
	phase phase
	claim window.Claim // of the exchange in flight, or the last one
	asked []*Hold      // whom it asks for

	untold       bool          // the store does not know all, or will not after the exchange in flight
	nextAt       time.Duration // when the next one is due, unless one is in flight; 0: at once; never: nothing is due
	sentAt       time.Duration // when the last one was sent
	failingSince time.Duration // when the first one was sent of those that have failed in a row; 0: none has
	knownUntil   time.Duration // until then, the store may know of something: a lease after what told it so has ended
	leasedUntil  time.Duration // when the places are lost, by the last answer
	keptUntil    time.Duration // and by the policy, as exchanges fail; 0: it does not keep them
	lateUntil    time.Duration // until then, a claim whose exchange has failed may reach the store
}

// phase is how far a pump is with its next exchange. What leads where:
//
//	from      its time   begin   answered or failed   idle
//	resting   queued     sent                         gone, unless it is untold, and the store may know of something
//	queued               sent                         gone, unless the store may know of something
//	sent                         resting
//
// In memory, nothing is queued. When the Limiter is closed, all are gone after a while.
type phase uint8

const (
	resting phase = iota // the next exchange tells what is untold, renews, or polls
	queued               // the exchange is due, and waits in its lane
	sent                 // it is in flight
	gone                 // the Limiter has forgotten the pump
)

func share(of time.Duration, part float64) time.Duration { return time.Duration(float64(of) * part) }

// open makes a pump that is new, or was forgotten, one of a key and name.
func (p *pump) open(key, name string, lease time.Duration) {
	p.exchanges = exchanges{claim: p.claim, asked: p.asked, nextAt: never}
	p.claim.Key = key
	p.claim.Name = name
	p.claim.Lease = lease
	p.timerAt = never
}

// tell has the store told something: at once, or after the exchange that is in flight.
func (p *pump) tell() { p.untold, p.nextAt = true, 0 }

// again makes the pump tell the store what it holds and wants, unless it will do so anyway.
func (p *pump) again() {
	if !p.untold && (p.held > 0 || len(p.wants) > 0) {
		p.tell()
	}
}

// add adds what a caller wants. If it is unlimited, the store need not be asked.
func (p *pump) add(h *Hold) {
	if h.want.Max == window.Unlimited {
		h.apart = true
		p.hold(h)
		return
	}
	p.tellOrRefuse(h, p.lineMax())
	if h.state == waiting {
		p.insert(h)
	}
}

// tellOrRefuse has the store told of a want, unless it is behind one in line. If it does not wait, it is refused then.
func (p *pump) tellOrRefuse(h *Hold, lineMax uint64) {
	switch {
	case h.want.Max > lineMax:
		p.tell()
	case !h.want.Wait:
		p.refuse(h, errNoPlace)
	}
}

// cancel ends what a caller wants or holds.
func (p *pump) cancel(h *Hold) {
	switch h.state {
	case waiting, inLine:
		i := slices.Index(p.wants, h)
		if h.state == inLine && i == 0 {
			p.tell() // the store leaves room for it
		}
		p.wants = slices.Delete(p.wants, i, i+1)
		p.set(h, released)
	case held:
		p.letGo(h, released)
		if !h.apart {
			p.tell()
		}
	}
}

// close ends all holds, and refuses all wants.
func (p *pump) close() {
	p.decide(Refuse, window.ErrClosed, true)
	p.endAll(closed)
	p.tell()
}

// tick loses what is held if its time is over.
func (p *pump) tick(now time.Duration) {
	if now >= p.loseAt() {
		p.endAll(lost)
		p.tell()
	}
}

// loseAt returns when what is held is lost, unless it is renewed.
func (p *pump) loseAt() time.Duration {
	if p.held == 0 {
		return never
	}
	return max(p.leasedUntil, p.keptUntil)
}

// exchangeAt returns when an exchange is to begin, or to be queued.
func (p *pump) exchangeAt() time.Duration {
	if p.phase != resting {
		return never
	}
	return p.nextAt
}

// due returns when the pump has something to do: an exchange, or places to lose.
func (p *pump) due() time.Duration { return min(p.exchangeAt(), p.loseAt()) }

// idle reports whether the pump can be forgotten. A store that can't be told that nothing is held any more knows by
// the lease, and one that was never told anything need not be.
func (p *pump) idle(now time.Duration) bool {
	if len(p.holds) > 0 || len(p.wants) > 0 {
		return false
	}
	allTold := p.phase == resting && !p.untold
	return allTold || p.phase != sent && now >= p.knownUntil
}

// begin begins an exchange with a claim, which is valid until it ends.
func (p *pump) begin(now time.Duration, seq uint64) *window.Claim {
	p.tick(now)
	p.phase = sent
	p.untold, p.nextAt = false, never
	p.sentAt = now
	p.asked = append(p.asked, p.wants[:min(len(p.wants), window.MaxWants)]...)
	c := &p.claim
	c.Seq = seq
	c.Strict = p.strict
	c.Held = min(p.held, window.MaxPlaces) // the policy may have granted more
	c.HeldMax = p.heldMax
	c.Wants = c.Wants[:0]
	for _, h := range p.asked {
		c.Wants = append(c.Wants, h.want)
	}
	return c
}

// end ends the exchange in flight, and reports whether the store may know of something because of it. It keeps none of
// those who have asked: they may be gone long before the next.
func (p *pump) end(now time.Duration, asked bool) (known bool) {
	known = asked && (p.claim.Held > 0 || len(p.claim.Wants) > 0)
	if known {
		p.knownUntil = now + p.claim.Lease
	}
	p.phase = resting
	clear(p.asked)
	p.asked = p.asked[:0]
	return known
}

// answered ends an exchange with its answer. It reports whether that says that the store has lost data.
func (p *pump) answered(now time.Duration, a *window.Places) (lostData bool) {
	p.tick(now) // what is lost stays lost, even if the store has renewed it
	until := p.sentAt + p.claim.Lease - share(p.claim.Lease, driftShare+marginShare)
	if a.Late || now >= until {
		p.failed(now, errLate, unanswered)
		return false
	}
	forgotten := a.Lost || a.Forgotten && p.sentAt < p.leasedUntil
	lostData = a.Grace > 0 || forgotten && !p.more
	if a.Lost {
		p.endAll(lost)
	}
	p.failingSince = 0
	p.leasedUntil = until
	p.keptUntil = 0
	p.more = false
	for i, h := range p.asked {
		token := uint64(0)
		if len(a.Tokens) > 0 {
			token = a.Tokens[i]
		}
		// One that has ended during the exchange is not changed: its caller may read it without the mutex.
		if !h.undecided() {
			if token > 0 || h.want.Wait {
				p.tell() // the store holds a place, or a position in line, for nobody
			}
			continue
		}
		h.used = a.Used
		h.token = token
		switch {
		case token > 0:
			p.hold(h)
		case h.want.Wait:
			h.state = inLine
		case a.Grace == 0:
			p.refuse(h, errNoPlace)
		}
	}
	p.end(now, true)
	if a.Grace > 0 {
		p.decide(p.policy, &NotYetError{RetryAfter: a.Grace}, p.policy != Refuse)
	}
	p.follow(now, a)
	return lostData
}

// follow sets what follows an answer. Wants that have come during the exchange and do not wait are refused if they are
// behind others, and otherwise asked for.
func (p *pump) follow(now time.Duration, a *window.Places) {
	lineMax := p.lineMax()
	p.wants = slices.DeleteFunc(p.wants, func(h *Hold) bool {
		if h.state == waiting {
			h.used = a.Used
			p.tellOrRefuse(h, lineMax)
		}
		return !h.undecided()
	})
	if p.untold { // at once
		return
	}
	if p.held > 0 {
		p.nextAt = p.sentAt + share(p.claim.Lease, renewShare)
	}
	if len(p.wants) > 0 {
		poll := min(share(p.claim.Lease, pollShare), maxPoll)
		if next := cmp.Or(a.Grace, a.Next); next > 0 {
			poll = min(poll, max(next, time.Millisecond))
		}
		p.nextAt = min(p.nextAt, now+poll)
	}
	if p.nextAt == never && p.sentAt < p.lateUntil { // it may reach the store after this claim of nothing
		p.untold, p.nextAt = true, p.lateUntil
	}
}

// failure is what a failed exchange says of the store.
type failure uint8

const ( // from away on, the policy decides at once
	unanswered failure = iota // nothing: the answer is of no use, or the process has stood still
	failing                   // it may be away
	away                      // it says that it can't, or the circuit has just been opened
	unasked                   // the circuit is open
	mistaken                  // it is there, and will not do what it is asked
)

// failed ends an exchange that has failed. The policy decides wants that do not wait, and all if the store is away, or
// exchanges of this key have failed for a lease. Otherwise, the next exchange says everything again.
func (p *pump) failed(now time.Duration, err error, f failure) {
	p.tick(now)
	known := p.end(now, f != unasked)
	if f == mistaken {
		p.failingSince = 0
		p.decide(Refuse, err, true)
		p.follow(now, &window.Places{}) // to say it again is of no use before the next renewal
		return
	}
	p.failingSince = cmp.Or(p.failingSince, p.sentAt)
	if known {
		p.lateUntil = now + min(share(p.claim.Lease, pollShare), maxLate)
	}
	for _, h := range p.wants {
		h.state = waiting
	}
	policy := p.policy
	if f == unanswered {
		policy = Refuse
	}
	if policy != Refuse && !p.strict {
		p.keptUntil = now + share(p.claim.Lease, keepShare)
	}
	p.decide(policy, err, f >= away || f == failing && now-p.failingSince >= p.claim.Lease)
	pause := min(max(p.sentAt-p.failingSince, minPause), maxPause, share(p.claim.Lease, pollShare))
	p.untold, p.nextAt = true, now+pause
}

// callers are those who want or hold places of a key and name. They are owed a decision, in order, and word of the end
// of what they hold. Those with a larger Max are first, and of these it is first come, first served.
type callers struct {
	*options
	changed func(*Hold) // is told of each that is decided, and of each that does not hold or want any more

	wants     []*Hold // that are not decided, in order
	holds     map[*Hold]struct{}
	held      uint64 // places that the store is told
	apart     uint64 // those that the policy has granted, and a strict store is not told
	unlimited uint64 // those that count nowhere
	heldMax   uint64 // the largest Max of what the store is told, since that was nothing
	more      bool   // the policy has granted some that the store is to be told, since its last answer
}

// set sets the state of one that is decided, or has ended.
func (c *callers) set(h *Hold, s state) {
	h.state = s
	c.changed(h)
}

// insert adds a want.
func (c *callers) insert(h *Hold) {
	i := len(c.wants)
	for i > 0 && c.wants[i-1].want.Max < h.want.Max {
		i--
	}
	c.wants = slices.Insert(c.wants, i, h)
}

// lineMax returns the largest Max of wants in line, or 0. A want whose Max is not larger is behind them.
func (c *callers) lineMax() uint64 {
	if i := slices.IndexFunc(c.wants, func(h *Hold) bool { return h.state == inLine }); i >= 0 {
		return c.wants[i].want.Max
	}
	return 0
}

// refuse refuses a want.
func (c *callers) refuse(h *Hold, err error) {
	h.err = err
	c.set(h, refused)
}

// counter returns where the places of a Hold count.
func (c *callers) counter(h *Hold) *uint64 {
	switch {
	case h.want.Max == window.Unlimited:
		return &c.unlimited
	case h.apart:
		return &c.apart
	}
	return &c.held
}

// hold makes a want one that is held.
func (c *callers) hold(h *Hold) {
	c.holds[h] = struct{}{}
	*c.counter(h) += h.want.N
	if !h.apart {
		c.heldMax = max(c.heldMax, h.want.Max)
	}
	c.set(h, held)
}

// letGo ends what is held.
func (c *callers) letGo(h *Hold, s state) {
	delete(c.holds, h)
	*c.counter(h) -= h.want.N
	if c.held == 0 {
		c.heldMax = 0
	}
	c.set(h, s)
}

// endAll ends what is held: all when the Limiter is closed, and otherwise what the store is told.
func (c *callers) endAll(s state) {
	for h := range c.holds {
		if s == closed || !h.apart {
			c.letGo(h, s)
		}
	}
}

// decide decides wants by a policy, as the store can't: those that do not wait, or all. What the policy has granted
// apart from the store counts, and what is unlimited does not, as with the store.
func (c *callers) decide(policy Policy, err error, all bool) {
	behind := false // there is one before it that waits on
	c.wants = slices.DeleteFunc(c.wants, func(h *Hold) bool {
		w := &h.want
		room := max(w.Max/max(c.processes, 1), 1)
		fits := policy == Admit || !behind && w.N <= room && c.held+c.apart <= room-w.N
		switch {
		case w.Wait && !all, // those are left to the store
			w.Wait && policy != Refuse && !fits: // until something is released
			behind = true
			return false
		case policy == Refuse:
			c.refuse(h, err)
		case fits:
			h.byPolicy = true
			h.apart = c.strict // the store has no room for it
			c.more = c.more || !h.apart
			c.hold(h)
		default:
			h.byPolicy = true
			c.refuse(h, errNoPlace)
		}
		return true
	})
}
