package inflight

import (
	"cmp"
	"slices"
	"sync/atomic"
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
	stillShare  = 3.0 / 8   // a process to which a failure seems to take so long has stood still
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
	lease    time.Duration
	rules    rules
	deadline atomic.Int64  // when the places are lost; holders read it
	kept     atomic.Bool   // it is that of the policy
	term     time.Duration // when it is without the policy

	phase  phase
	at     time.Duration // of the next exchange, if none is in flight
	pause  time.Duration // after the last failure
	sentAt time.Duration
	failAt time.Duration // when the first of the exchanges was sent that have failed in a row; 0: the last one was answered
	toldAt time.Duration // when an exchange that holds or wants something was sent last

	held    uint64         // places that the store is told
	apart   uint64         // those that it is not told
	alone   bool           // the policy has granted some since the last answer
	holds   map[*want]bool // that are held
	heldMax uint64         // the largest Max of holds since none was held
	wants   []*want        // those with a larger Max first, and of these in the order in which they have come
	asked   []*want        // those of the exchange in flight
	decided []decision     // since the caller has taken them
}

// rules are what a Limiter does when the store can't, or may not, decide.
type rules struct {
	policy    Policy
	processes uint64
	strict    bool
}

// phase is what a pump does next.
type phase uint8

const (
	told   phase = iota // the next exchange is a renewal or a poll: the store knows the rest
	due                 // the next exchange has something to tell
	asking              // an exchange that tells all is in flight
	stale               // one is in flight, and there is more to tell
	phases
)

// step is what happens to a pump.
type step uint8

const (
	news     step = iota // there is something to tell
	sent                 // an exchange begins
	answered             // it ends with an answer
	failed               // or without one
	steps
)

// leads is what leads where. What is not there does not happen.
var leads = [phases][steps]phase{
	told:   {news: due, sent: asking, answered: phases, failed: phases},
	due:    {news: due, sent: asking, answered: phases, failed: phases},
	asking: {news: stale, sent: phases, answered: told, failed: due},
	stale:  {news: stale, sent: phases, answered: due, failed: due},
}

// step changes the phase.
func (p *pump) step(s step) {
	if s == news && p.phase == told {
		p.at = 0
	}
	p.phase = leads[p.phase][s]
}

// inFlight reports whether an exchange is in flight.
func (p *pump) inFlight() bool { return p.phase == asking || p.phase == stale }

// want is n places under a Max that a caller wants, or holds.
type want struct {
	n, max uint64
	wait   bool
	state  state
	token  uint64      // constant after the grant, as alone and apart are
	alone  bool        // the policy has granted it
	apart  bool        // the store is not told: it is unlimited, or the policy has granted it, and the store is strict
	lost   atomic.Bool // before its Hold knows

	pump  *keyPump
	hold  *Hold
	ready chan decision // the first one
}

// valid reports whether what was granted has not been lost.
func (w *want) valid(now time.Duration) bool {
	return !w.lost.Load() && (w.apart || now < w.pump.end())
}

// decision is that the state of a want has changed.
type decision struct {
	want  *want
	state state
	alone bool   // the policy has decided
	used  uint64 // places of the key, as far as the store has said
	err   error  // why a want was refused although there may be room
}

type state uint8

const (
	waiting state = iota
	inLine        // waiting, and the store has not granted it
	held
	refused
	gone // lost, released, or not wanted any more
)

func share(of time.Duration, part float64) time.Duration { return time.Duration(float64(of) * part) }

// termOf returns how long places are held after the send of an exchange.
func termOf(lease time.Duration) time.Duration {
	return lease - share(lease, driftShare) - share(lease, marginShare)
}

// end returns when what is held is lost.
func (p *pump) end() time.Duration { return time.Duration(p.deadline.Load()) }

// behind returns the largest Max of wants in line, or 0.
func (p *pump) behind() uint64 {
	for _, w := range p.wants {
		if w.state == inLine {
			return w.max
		}
	}
	return 0
}

// add adds a want. Behind one in line, nothing is granted: the store need not be asked.
func (p *pump) add(w *want) {
	if behind := p.behind(); w.max > behind {
		p.step(news)
		p.at = 0 // whoever has just come knows of no failure
	} else if !w.wait {
		p.decide(w, decision{state: refused})
		return
	}
	i := len(p.wants)
	for i > 0 && p.wants[i-1].max < w.max {
		i--
	}
	p.wants = slices.Insert(p.wants, i, w)
}

// cancel ends a want whose caller has gone, or what it holds.
func (p *pump) cancel(w *want) {
	switch w.state {
	case waiting, inLine:
		i := slices.Index(p.wants, w)
		if i < 0 {
			return
		}
		if w.state == inLine && i == 0 {
			p.step(news) // the store leaves room for it
		}
		p.wants = slices.Delete(p.wants, i, i+1)
	case held:
		p.letGo(w)
		p.step(news)
		if len(p.wants) > 0 {
			p.at = 0
		}
	default:
		return
	}
	w.state = gone
}

// decide changes the state of a want, and lets the caller know.
func (p *pump) decide(w *want, d decision) {
	w.state = d.state
	d.want = w
	p.decided = append(p.decided, d)
}

// hold makes a want one that is held.
func (p *pump) hold(w *want, d decision) {
	if p.holds == nil {
		p.holds = map[*want]bool{}
	}
	p.holds[w] = true
	if w.apart {
		p.apart += w.n
	} else {
		p.held += w.n
		p.heldMax = max(p.heldMax, w.max)
	}
	d.state = held
	p.decide(w, d)
}

// letGo ends what a want holds.
func (p *pump) letGo(w *want) {
	delete(p.holds, w)
	if w.apart {
		p.apart -= w.n
		return
	}
	p.held -= w.n
	if p.held == 0 {
		p.heldMax = 0
	}
}

// lose ends all that the store was told.
func (p *pump) lose() {
	for w := range p.holds {
		if !w.apart {
			p.letGo(w)
			w.lost.Store(true)
			p.decide(w, decision{state: gone, err: ErrLost})
		}
	}
}

// tick loses what is held if its time is over.
func (p *pump) tick(now time.Duration) {
	if now >= p.loseAt() {
		p.lose()
		p.step(news)
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
	return p.end()
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
	return len(p.holds) == 0 && len(p.wants) == 0 && !p.inFlight() && (p.phase == told || now >= p.toldAt+p.lease)
}

// claim begins an exchange.
func (p *pump) claim(now time.Duration) window.Claim {
	p.tick(now)
	p.step(sent)
	p.sentAt = now
	p.asked = slices.Clone(p.wants[:min(len(p.wants), window.MaxWants)])
	if p.held > 0 || len(p.asked) > 0 {
		p.toldAt = now
	}
	wants := make([]window.Want, 0, len(p.asked))
	for _, w := range p.asked {
		wants = append(wants, window.Want{N: w.n, Max: w.max, Wait: w.wait})
	}
	told := min(p.held, window.MaxPlaces) // the policy may have granted more
	return window.Claim{Lease: p.lease, Strict: p.rules.strict, Held: told, HeldMax: p.heldMax, Wants: wants}
}

// answered ends an exchange with its answer. It reports whether that says that the store has lost data.
func (p *pump) answered(now time.Duration, a *window.Places) (lostData bool) {
	p.tick(now) // what is lost stays lost, even if the store has renewed it
	end := p.sentAt + termOf(p.lease)
	if a.Late || now >= end {
		p.failed(now, errLate, unanswered)
		return false
	}
	p.step(answered)
	forgotten := a.Lost || a.Forgotten && p.sentAt < p.term
	lostData = a.Grace > 0 || forgotten && !p.alone
	if a.Lost {
		p.lose()
	}
	p.pause = 0
	p.failAt = 0
	p.alone = false
	p.term = end
	p.deadline.Store(int64(end))
	p.kept.Store(false)
	for i, w := range p.asked {
		p.answer(w, a.Tokens != nil && a.Tokens[i] != 0, a, i)
	}
	p.asked = nil
	if a.Grace > 0 {
		p.decideAlone(p.rules.policy, &NotYetError{RetryAfter: a.Grace}, p.rules.policy != Refuse)
	}
	p.follow(now, a)
	return lostData
}

// answer is what the store has answered to a want.
func (p *pump) answer(w *want, granted bool, a *window.Places, i int) {
	wants := w.state == waiting || w.state == inLine
	switch {
	case granted && wants:
		w.token = a.Tokens[i]
		p.hold(w, decision{used: a.Used})
	case granted, !wants && w.wait:
		p.step(news) // the store holds a place, or a position in line, for nobody
	case !wants:
	case w.wait:
		w.state = inLine
	case a.Grace == 0:
		p.decide(w, decision{state: refused, used: a.Used})
	}
}

// follow sets what follows an answer. Wants that have come during the exchange and do not wait are refused if they are
// behind others, and otherwise asked for.
func (p *pump) follow(now time.Duration, a *window.Places) {
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool { return w.state != waiting && w.state != inLine })
	behind := p.behind()
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool {
		switch {
		case w.state == inLine:
		case w.max > behind:
			p.step(news)
		case !w.wait:
			p.decide(w, decision{state: refused, used: a.Used})
			return true
		}
		return false
	})
	p.at = never
	if p.phase == due {
		p.at = 0
		return
	}
	if p.held > 0 {
		p.at = p.sentAt + share(p.lease, renewShare)
	}
	if len(p.wants) > 0 {
		poll := min(share(p.lease, pollShare), maxPoll)
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
		p.step(answered) // to say it again is of no use before the next renewal
		p.failAll(err)
		p.follow(now, &window.Places{})
		return
	}
	p.step(failed)
	p.asked = nil
	p.failAt = cmp.Or(p.failAt, p.sentAt)
	p.pause = min(max(2*p.pause, minPause), maxPause, share(p.lease, pollShare))
	p.at = now + p.pause
	for _, w := range p.wants {
		w.state = waiting
	}
	switch {
	case f == unanswered || now-p.sentAt > share(p.lease, stillShare):
		p.decideAlone(Refuse, err, false)
	default:
		if p.rules.policy != Refuse && !p.rules.strict {
			p.kept.Store(true)
			p.deadline.Store(max(p.deadline.Load(), int64(now+share(p.lease, keepShare))))
		}
		p.decideAlone(p.rules.policy, err, f == away || now-p.failAt >= p.lease)
	}
}

// decideAlone decides wants by a policy, as the store can't: those that do not wait, or all.
func (p *pump) decideAlone(policy Policy, err error, all bool) {
	behind := uint64(0)
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool {
		room := max(w.max/max(p.rules.processes, 1), 1)
		switch {
		case w.wait && !all:
			behind = max(behind, w.max)
			return false
		case policy == Refuse:
			p.decide(w, decision{state: refused, err: err})
		case policy == Admit, w.max > behind && w.n <= room && p.held+p.apart <= room-w.n:
			p.grantAlone(w)
		case !w.wait:
			p.decide(w, decision{state: refused, alone: true})
		default:
			behind = max(behind, w.max)
			return false
		}
		return true
	})
}

// grantAlone grants a want by the policy. Unless claims are strict, the store is told when it is there.
func (p *pump) grantAlone(w *want) {
	w.alone = true
	if p.rules.strict {
		p.grantApart(w)
		return
	}
	p.alone = true
	p.hold(w, decision{alone: true})
	p.step(news)
}

// grantApart grants a want of which the store is not told.
func (p *pump) grantApart(w *want) {
	w.apart = true
	p.hold(w, decision{alone: w.alone})
}

// wake makes the pump ask the store.
func (p *pump) wake() {
	if len(p.wants) > 0 {
		p.step(news)
	}
}

// renew makes the pump tell the store what it holds.
func (p *pump) renew() {
	if p.held > 0 {
		p.step(news)
	}
}

// failAll refuses all wants because of an error.
func (p *pump) failAll(err error) {
	for _, w := range p.wants {
		p.decide(w, decision{state: refused, err: err})
	}
	p.wants = nil
}
