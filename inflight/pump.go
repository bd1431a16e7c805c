package inflight

import (
	"cmp"
	"errors"
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
	pollShare   = 1.0 / 8   // how often a process in line asks
	keepShare   = 1.0 / 2   // for how long a failure keeps places, if the policy does: longer than until the next one
	maxPoll     = time.Second / 2
	minPause    = 10 * time.Millisecond // between exchanges that fail
	maxPause    = 250 * time.Millisecond
)

// errLate is why an answer is of no use.
var errLate = outage.Error("the answer of the store took longer than the lease")

// never is later than all times of a process, and sooner than any part of [ledger.Forever] is over.
const never = time.Duration(1 << 59)

// pump is what a process holds and wants of a key and name. It makes one exchange at a time, in which it tells
// all of it. It knows no clock and no store: time is the monotonic time that is passed to it, which is not negative.
//
//   - Places are held until a lease, less drift and margin, after the send of the last answered exchange. Then they
//     are lost, unless the policy keeps them while exchanges fail, and it was not the process that stood still.
//   - Wants that wait are granted those with a larger Max first, and of these first come, first served.
//   - A place that is granted to nobody, because the caller has gone, is given back by the next exchange.
type pump struct {
	rules rules
	claim window.Claim // of the exchange in flight
	status
	holds   []*want // that are held
	wants   []*want // those with a larger Max first, and of these in the order in which they have come
	asked   []*want // those of the exchange in flight
	changed []*want // decided, lost or closed, since the caller has told them
}

// status is what a pump knows of its places, and of its exchanges.
type status struct {
	deadline time.Duration // when the places are lost
	kept     bool          // it is that of the policy
	term     time.Duration // when it is without the policy

	phase  phase
	at     time.Duration // of the next exchange, if none is in flight
	sentAt time.Duration
	failAt time.Duration // when the first of the exchanges was sent that have failed in a row; 0: the last one was answered
	toldAt time.Duration // when an exchange that holds or wants something was sent last

	held    uint64 // places that the store is told
	apart   uint64 // those that it is not told
	heldMax uint64 // the largest Max of holds since none was held
	untold  bool   // the policy has granted some since the last answer
}

// rules are what a Limiter does when the store can't, or may not, decide.
type rules struct {
	policy    Policy
	processes uint64
	strict    bool
}

// phase is what the store knows of a pump. An exchange begins only while none is in flight, and ends only while one is.
//
//	         news    begin    answered   failed
//	told     due     asking
//	due      due     asking
//	asking   stale            told       due
//	stale    stale            due        due
type phase uint8

const (
	told   phase = iota // it knows all: the next exchange is a renewal or a poll
	due                 // the next exchange has something to tell
	asking              // an exchange that tells all is in flight
	stale               // one is in flight, and there is more to tell
)

// reset makes a pump that holds and wants nothing one for places with a lease.
func (p *pump) reset(lease time.Duration) {
	p.status = status{at: never}
	p.claim.Lease = lease
}

// news has the store told something: at once, or after the exchange that is in flight.
func (p *pump) news() {
	p.at = 0
	if p.inFlight() {
		p.phase = stale
	} else {
		p.phase = due
	}
}

// heard ends an exchange that the store has heard.
func (p *pump) heard() {
	if p.phase == stale {
		p.phase = due
	} else {
		p.phase = told
	}
}

// inFlight reports whether an exchange is in flight.
func (p *pump) inFlight() bool { return p.phase == asking || p.phase == stale }

// want is places under a Max that a caller wants, or holds.
type want struct {
	window.Want
	state state
	err   error  // why it is refused
	used  uint64 // places of the key when it was decided, as far as the store has said
	token uint64
	alone bool // the policy has decided
	apart bool // the store is not told: it is unlimited, or the policy has granted it, and the store is strict
	at    int  // in the list of holds

	pump  *keyPump
	hold  *Hold
	ready chan struct{} // is closed when it is decided; nil: nobody waits for that
}

// errNoPlace says that a want is refused because there is no place.
var errNoPlace = errors.New("inflight: there is no place")

type state uint8

const (
	waiting state = iota
	inLine        // waiting, and the store has not granted it
	refused
	held
	released // or not wanted any more
	lost
	closed
)

func share(of time.Duration, part float64) time.Duration { return time.Duration(float64(of) * part) }

// termOf returns how long places are held after the send of an exchange.
func termOf(lease time.Duration) time.Duration {
	return lease - share(lease, driftShare) - share(lease, marginShare)
}

// behind returns the largest Max of wants in line, or 0.
func (p *pump) behind() uint64 {
	for _, w := range p.wants {
		if w.state == inLine {
			return w.Max
		}
	}
	return 0
}

// add adds a want. If it is unlimited, the store need not be asked.
func (p *pump) add(w *want) {
	if w.Max == window.Unlimited {
		w.apart = true
		p.hold(w)
		return
	}
	p.askFor(w, p.behind())
	if w.state == refused {
		return
	}
	i := len(p.wants)
	for i > 0 && p.wants[i-1].Max < w.Max {
		i--
	}
	p.wants = slices.Insert(p.wants, i, w)
}

// askFor has the store asked for a want, unless one in line has a Max that is not smaller. If the want does not wait, it
// is refused then.
func (p *pump) askFor(w *want, behind uint64) {
	switch {
	case w.Max > behind:
		p.news()
	case !w.Wait:
		p.decide(w, refused, errNoPlace)
	}
}

// cancel ends a want whose caller has gone, or what it holds. It returns false if there is nothing to end.
func (p *pump) cancel(w *want) bool {
	switch w.state {
	case waiting, inLine:
		i := slices.Index(p.wants, w)
		if w.state == inLine && i == 0 {
			p.news() // the store leaves room for it
		}
		p.wants = slices.Delete(p.wants, i, i+1)
		w.state = released
		return true
	case held:
		p.letGo(w, released)
		p.news()
		return true
	}
	return false
}

// decide says that a want is held, or why it is refused.
func (p *pump) decide(w *want, s state, err error) {
	w.state = s
	w.err = err
	p.changed = append(p.changed, w)
}

// hold makes a want one that is held.
func (p *pump) hold(w *want) {
	w.at = len(p.holds)
	p.holds = append(p.holds, w)
	if w.apart {
		p.apart += w.N
	} else {
		p.held += w.N
		p.heldMax = max(p.heldMax, w.Max)
	}
	p.decide(w, held, nil)
}

// letGo ends what a want holds.
func (p *pump) letGo(w *want, s state) {
	w.state = s
	last := len(p.holds) - 1
	p.holds[w.at] = p.holds[last]
	p.holds[w.at].at = w.at
	p.holds[last] = nil
	p.holds = p.holds[:last]
	if w.apart {
		p.apart -= w.N
		return
	}
	p.held -= w.N
	if p.held == 0 {
		p.heldMax = 0
	}
}

// end ends all holds, or those that the store is told.
func (p *pump) end(s state, all bool) {
	for i := len(p.holds) - 1; i >= 0; i-- {
		if w := p.holds[i]; all || !w.apart {
			p.letGo(w, s)
			p.changed = append(p.changed, w)
		}
	}
}

// close ends all holds, and refuses all wants.
func (p *pump) close() {
	p.failAll(window.ErrClosed)
	p.end(closed, true)
	p.news()
}

// tick loses what is held if its time is over.
func (p *pump) tick(now time.Duration) {
	if now >= p.loseAt() {
		p.end(lost, false)
		p.news()
	}
}

// due returns when the pump has something to do: an exchange, or places to lose. It returns never if there is
// nothing.
func (p *pump) due() time.Duration { return min(p.sendAt(), p.loseAt()) }

// loseAt returns when what is held is lost, unless it is renewed.
func (p *pump) loseAt() time.Duration {
	if p.held == 0 {
		return never
	}
	return p.deadline
}

// sendAt returns when the next exchange is due.
func (p *pump) sendAt() time.Duration {
	if p.inFlight() {
		return never
	}
	return p.at
}

// idle reports whether the pump can be forgotten. A store that could not be told that nothing is held any more
// knows after a lease.
func (p *pump) idle(now time.Duration) bool {
	return len(p.holds) == 0 && len(p.wants) == 0 && !p.inFlight() && (p.phase == told || now >= p.toldAt+p.claim.Lease)
}

// begin begins an exchange with a claim, which is valid until it ends.
func (p *pump) begin(now time.Duration, seq uint64) *window.Claim {
	p.tick(now)
	p.phase = asking
	p.sentAt = now
	p.asked = append(p.asked[:0], p.wants[:min(len(p.wants), window.MaxWants)]...)
	if p.held > 0 || len(p.asked) > 0 {
		p.toldAt = now
	}
	c := &p.claim
	c.Seq = seq
	c.Strict = p.rules.strict
	c.Held = min(p.held, window.MaxPlaces) // the policy may have granted more
	c.HeldMax = p.heldMax
	c.Wants = c.Wants[:0]
	for _, w := range p.asked {
		c.Wants = append(c.Wants, w.Want)
	}
	return c
}

// answered ends an exchange with its answer. It reports whether that says that the store has lost data.
func (p *pump) answered(now time.Duration, a *window.Places) (lostData bool) {
	p.tick(now) // what is lost stays lost, even if the store has renewed it
	end := p.sentAt + termOf(p.claim.Lease)
	if a.Late || now >= end {
		p.failed(now, errLate, unanswered)
		return false
	}
	p.heard()
	forgotten := a.Lost || a.Forgotten && p.sentAt < p.term
	lostData = a.Grace > 0 || forgotten && !p.untold
	if a.Lost {
		p.end(lost, false)
	}
	p.failAt = 0
	p.untold = false
	p.term = end
	p.deadline = end
	p.kept = false
	for i, w := range p.asked {
		p.answer(w, len(a.Tokens) > 0 && a.Tokens[i] != 0, a, i)
	}
	clear(p.asked)
	if a.Grace > 0 {
		p.decideAlone(p.rules.policy, &NotYetError{RetryAfter: a.Grace}, p.rules.policy != Refuse)
	}
	p.follow(now, a)
	return lostData
}

// answer is what the store has answered to a want.
func (p *pump) answer(w *want, granted bool, a *window.Places, i int) {
	wants := w.state == waiting || w.state == inLine
	if wants {
		w.used = a.Used
	}
	switch {
	case granted && wants:
		w.token = a.Tokens[i]
		p.hold(w)
	case granted, !wants && w.Wait:
		p.news() // the store holds a place, or a position in line, for nobody
	case !wants:
	case w.Wait:
		w.state = inLine
	case a.Grace == 0:
		p.decide(w, refused, errNoPlace)
	}
}

// follow sets what follows an answer. Wants that have come during the exchange and do not wait are refused if they are
// behind others, and otherwise asked for.
func (p *pump) follow(now time.Duration, a *window.Places) {
	behind := p.behind()
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool {
		if w.state == waiting {
			w.used = a.Used
			p.askFor(w, behind)
		}
		return w.state != waiting && w.state != inLine
	})
	p.at = never
	if p.phase == due {
		p.at = 0
		return
	}
	if p.held > 0 {
		p.at = p.sentAt + share(p.claim.Lease, renewShare)
	}
	if len(p.wants) > 0 {
		poll := min(share(p.claim.Lease, pollShare), maxPoll)
		for _, next := range []time.Duration{a.Next, a.Grace} {
			if next > 0 {
				poll = min(poll, max(next, time.Millisecond))
			}
		}
		p.at = min(p.at, now+poll)
	}
}

// failure is what a failed exchange says of the store.
type failure uint8

const (
	unanswered failure = iota // nothing: the answer is of no use, or the process has stood still
	failing                   // it may be away
	away                      // the circuit is open, or it says that it can't
	mistaken                  // it is there, and will not do what it is asked
)

// failed ends an exchange that has failed. The policy decides wants that do not wait, and all if the store is away, or
// exchanges of this key have failed for a lease. Otherwise, the next exchange says everything again.
func (p *pump) failed(now time.Duration, err error, f failure) {
	p.tick(now)
	if f == mistaken {
		p.heard() // to say it again is of no use before the next renewal
		p.failAll(err)
		p.follow(now, &window.Places{})
		return
	}
	p.phase = due
	p.failAt = cmp.Or(p.failAt, p.sentAt)
	for _, w := range p.wants {
		w.state = waiting
	}
	if f == unanswered {
		p.decideAlone(Refuse, err, false)
	} else {
		if p.rules.policy != Refuse && !p.rules.strict {
			p.kept = true
			p.deadline = max(p.deadline, now+share(p.claim.Lease, keepShare))
		}
		p.decideAlone(p.rules.policy, err, f == away || now-p.failAt >= p.claim.Lease)
	}
	p.at = now + min(max(p.sentAt-p.failAt, minPause), maxPause, share(p.claim.Lease, pollShare))
}

// decideAlone decides wants by a policy, as the store can't: those that do not wait, or all.
func (p *pump) decideAlone(policy Policy, err error, all bool) {
	behind := uint64(0)
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool {
		room := max(w.Max/max(p.rules.processes, 1), 1)
		switch {
		case w.Wait && !all:
			behind = max(behind, w.Max)
			return false
		case policy == Refuse:
			p.decide(w, refused, err)
		case policy == Admit, w.Max > behind && w.N <= room && p.held+p.apart <= room-w.N:
			p.grantAlone(w)
		case !w.Wait:
			w.alone = true
			p.decide(w, refused, errNoPlace)
		default:
			behind = max(behind, w.Max)
			return false
		}
		return true
	})
}

// grantAlone grants a want by the policy. Unless claims are strict, the store is told when it is there.
func (p *pump) grantAlone(w *want) {
	w.alone = true
	w.apart = p.rules.strict
	p.hold(w)
	if !w.apart {
		p.untold = true
		p.news()
	}
}

// again makes the pump tell the store what it holds and wants, unless it will do so anyway.
func (p *pump) again() {
	if p.phase != due && (p.held > 0 || len(p.wants) > 0) {
		p.news()
	}
}

// failAll refuses all wants because of an error.
func (p *pump) failAll(err error) {
	for _, w := range p.wants {
		p.decide(w, refused, err)
	}
	clear(p.wants)
	p.wants = p.wants[:0]
}
