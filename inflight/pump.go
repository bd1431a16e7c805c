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
	rules   rules
	claim   window.Claim // of the exchange in flight
	changed func(*want)  // is told of a want that is decided, and of one that holds nothing any more

	holds map[*want]struct{} // that are held
	wants []*want            // those with a larger Max first, and of these in the order in which they have come
	asked []*want            // those of the exchange in flight

	inFlight bool          // an exchange is
	news     bool          // there is something to tell, which the exchange in flight does not
	at       time.Duration // of the next exchange, if none is in flight
	sentAt   time.Duration // of the last exchange
	failAt   time.Duration // when the first of the exchanges was sent that have failed in a row; 0: the last one was answered

	knownUntil time.Duration // until then, the store may know of something: a lease after it was told so last

	term  time.Duration // when the places are lost, by the last answer
	keep  time.Duration // and by the policy, as exchanges fail; 0: it does not keep them
	alone bool          // the policy has granted some since the last answer

	held    uint64 // places that the store is told
	apart   uint64 // those that it is not told
	heldMax uint64 // the largest Max of holds since none was held
}

// rules are what a Limiter does when the store can't, or may not, decide.
type rules struct {
	policy    Policy
	processes uint64
	strict    bool
}

// newPump returns a pump that makes claims like c, which holds and wants nothing.
func newPump(c window.Claim, r rules, changed func(*want)) pump {
	return pump{rules: r, claim: c, changed: changed, holds: map[*want]struct{}{}, at: never}
}

// tell has the store told something: at once, or after the exchange that is in flight.
func (p *pump) tell() {
	p.news = true
	p.at = 0
}

// want is places under a Max that a caller wants, or holds.
type want struct {
	window.Want
	state state
	err   error  // why it is refused
	used  uint64 // places of the key when it was decided, as far as the store has said
	token uint64
	alone bool // the policy has decided
	apart bool // the store is not told: it is unlimited, or the policy has granted it, and the store is strict

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
		p.tell()
	case !w.Wait:
		p.refuse(w, errNoPlace)
	}
}

// cancel ends a want whose caller has gone, or what it holds.
func (p *pump) cancel(w *want) {
	switch w.state {
	case waiting, inLine:
		i := slices.Index(p.wants, w)
		if w.state == inLine && i == 0 {
			p.tell() // the store leaves room for it
		}
		p.wants = slices.Delete(p.wants, i, i+1)
		p.set(w, released)
	case held:
		p.letGo(w, released)
		if !w.apart {
			p.tell()
		}
	}
}

// set sets the state of a want that is decided, or has ended.
func (p *pump) set(w *want, s state) {
	w.state = s
	p.changed(w)
}

// refuse refuses a want that is not decided.
func (p *pump) refuse(w *want, err error) {
	w.err = err
	p.set(w, refused)
}

// hold makes a want one that is held.
func (p *pump) hold(w *want) {
	p.holds[w] = struct{}{}
	if w.apart {
		p.apart += w.N
	} else {
		p.held += w.N
		p.heldMax = max(p.heldMax, w.Max)
	}
	p.set(w, held)
}

// letGo ends what a want holds.
func (p *pump) letGo(w *want, s state) {
	delete(p.holds, w)
	if w.apart {
		p.apart -= w.N
	} else {
		p.held -= w.N
	}
	if p.held == 0 {
		p.heldMax = 0
	}
	p.set(w, s)
}

// end ends all holds, or those that the store is told.
func (p *pump) end(s state, all bool) {
	for w := range p.holds {
		if all || !w.apart {
			p.letGo(w, s)
		}
	}
}

// close ends all holds, and refuses all wants.
func (p *pump) close() {
	p.decideAlone(Refuse, window.ErrClosed, true)
	p.end(closed, true)
	p.tell()
}

// tick loses what is held if its time is over.
func (p *pump) tick(now time.Duration) {
	if now >= p.loseAt() {
		p.end(lost, false)
		p.tell()
	}
}

// due returns when the pump has something to do: an exchange, or places to lose. It returns never if there is
// nothing.
func (p *pump) due() time.Duration { return min(p.sendAt(), p.loseAt()) }

// deadline returns when the places are lost, unless they are renewed.
func (p *pump) deadline() time.Duration { return max(p.term, p.keep) }

// loseAt returns when what is held is lost, unless it is renewed.
func (p *pump) loseAt() time.Duration {
	if p.held == 0 {
		return never
	}
	return p.deadline()
}

// sendAt returns when the next exchange is due.
func (p *pump) sendAt() time.Duration {
	if p.inFlight {
		return never
	}
	return p.at
}

// idle reports whether the pump can be forgotten. A store that can't be told that nothing is held any more knows by
// the lease, and one that was never told anything need not be.
func (p *pump) idle(now time.Duration) bool {
	return len(p.holds) == 0 && len(p.wants) == 0 && !p.inFlight && (!p.news || now >= p.knownUntil)
}

// begin begins an exchange with a claim, which is valid until it ends.
func (p *pump) begin(now time.Duration, seq uint64) *window.Claim {
	p.tick(now)
	p.inFlight = true
	p.news = false
	p.sentAt = now
	p.asked = append(p.asked[:0], p.wants[:min(len(p.wants), window.MaxWants)]...)
	if p.held > 0 || len(p.asked) > 0 {
		p.knownUntil = now + p.claim.Lease
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

// endExchange ends the exchange in flight. It keeps none of those who have asked: they may be gone long before the next.
func (p *pump) endExchange() {
	p.inFlight = false
	clear(p.asked)
}

// answered ends an exchange with its answer. It reports whether that says that the store has lost data.
func (p *pump) answered(now time.Duration, a *window.Places) (lostData bool) {
	p.tick(now) // what is lost stays lost, even if the store has renewed it
	end := p.sentAt + termOf(p.claim.Lease)
	if a.Late || now >= end {
		p.failed(now, errLate, unanswered)
		return false
	}
	forgotten := a.Lost || a.Forgotten && p.sentAt < p.term
	lostData = a.Grace > 0 || forgotten && !p.alone
	if a.Lost {
		p.end(lost, false)
	}
	p.failAt = 0
	p.term = end
	p.keep = 0
	p.alone = false
	for i, w := range p.asked {
		token := uint64(0)
		if len(a.Tokens) > 0 {
			token = a.Tokens[i]
		}
		p.answer(w, token, a)
	}
	p.endExchange()
	if a.Grace > 0 {
		p.decideAlone(p.rules.policy, &NotYetError{RetryAfter: a.Grace}, p.rules.policy != Refuse)
	}
	p.follow(now, a)
	return lostData
}

// answer is what the store has answered to a want: a token if it is granted, or 0.
func (p *pump) answer(w *want, token uint64, a *window.Places) {
	if w.state != waiting && w.state != inLine {
		if token > 0 || w.Wait {
			p.tell() // the store holds a place, or a position in line, for nobody
		}
		return
	}
	w.used = a.Used
	switch {
	case token > 0:
		w.token = token
		p.hold(w)
	case w.Wait:
		w.state = inLine
	case a.Grace == 0:
		p.refuse(w, errNoPlace)
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
	if p.news {
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
	p.endExchange()
	if f == mistaken {
		p.decideAlone(Refuse, err, true)
		p.follow(now, &window.Places{}) // to say it again is of no use before the next renewal
		return
	}
	p.news = true
	p.failAt = cmp.Or(p.failAt, p.sentAt)
	for _, w := range p.wants {
		w.state = waiting
	}
	if f == unanswered {
		p.decideAlone(Refuse, err, false)
	} else {
		if p.rules.policy != Refuse && !p.rules.strict {
			p.keep = now + share(p.claim.Lease, keepShare)
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
			p.refuse(w, err)
		case policy == Admit, w.Max > behind && w.N <= room && p.held+p.apart <= room-w.N:
			w.alone = true
			w.apart = p.rules.strict // the store has no room for it
			p.alone = !w.apart
			p.hold(w)
		case !w.Wait:
			w.alone = true
			p.refuse(w, errNoPlace)
		default:
			behind = max(behind, w.Max)
			return false
		}
		return true
	})
}

// again makes the pump tell the store what it holds and wants, unless it will do so anyway.
func (p *pump) again() {
	if !p.news && (p.held > 0 || len(p.wants) > 0) {
		p.tell()
	}
}
