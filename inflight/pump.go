package inflight

import (
	"math"
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
	maxPoll     = time.Second / 2
	minPause    = 10 * time.Millisecond // between exchanges that fail
	maxPause    = 250 * time.Millisecond
)

// errLate is why an answer is of no use.
var errLate = outage.Error("the answer of the store took longer than the lease")

const never = time.Duration(math.MaxInt64)

// pump is what a process holds and wants of a key and name. It makes one exchange at a time, in which it tells
// all of it. It knows no clock and no store: time is the monotonic time that is passed to it, which is not negative.
//
//   - Places are held until a lease, less drift and margin, after the send of the last answered exchange. Then they
//     are lost.
//   - Wants that wait are granted first come, first served.
//   - A place that is granted to nobody, because the caller has gone, is given back by the next exchange.
type pump struct {
	lease    time.Duration
	deadline atomic.Int64 // when the places are lost; holders read it

	held    uint64
	holds   *want      // that are held
	heldMax uint64     // the largest Max of holds since none was held
	wants   []*want    // in the order in which they have come
	decided []decision // since the caller has taken them

	exchanging bool // an exchange is in flight
	sentAt     time.Duration
	toldAt     time.Duration // when an exchange that holds or wants something was sent last
	term       time.Duration // how long places are held after its send
	asked      []*want       // its wants
	claimed    []window.Want // the same, for the store

	urgent  bool   // there is something to tell
	behind  uint64 // the largest Max of the wants that wait and that the store has not granted; 0 if there are none
	renewAt time.Duration
	pollAt  time.Duration
	pauseTo time.Duration // after a failure
	pause   time.Duration
}

// want is n places under a Max that a caller wants, or holds.
type want struct {
	n, max uint64
	wait   bool
	state  state
	token  uint64      // constant after the grant
	lost   atomic.Bool // before its Hold knows

	next, prev *want // of holds
	pump       *keyPump
	hold       *Hold
	ready      chan decision // the first one
}

// decision is that the state of a want has changed.
type decision struct {
	want  *want
	state state
	err   error // why a want was refused although there may be room
}

type state uint8

const (
	waiting state = iota
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

// add adds a want behind those whose Max is not smaller. Behind one that waits, nothing is granted: the store need not be
// asked.
func (p *pump) add(w *want) {
	switch {
	case w.max > p.behind:
		p.urgent = true
		p.pauseTo = 0 // whoever has just come knows of no failure
	case !w.wait:
		p.decide(w, refused, nil)
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
	case waiting:
		w.state = gone
		if i := slices.Index(p.wants, w); i >= 0 {
			// The store may hold a place for it in line, before others.
			if i == 0 && p.behind > 0 {
				p.urgent = true
				p.behind = 0
			}
			p.wants = slices.Delete(p.wants, i, i+1)
		}
	case held:
		p.letGo(w)
		w.state, p.urgent = gone, true
	}
}

// decide changes the state of a want, and lets the caller know.
func (p *pump) decide(w *want, to state, err error) {
	w.state = to
	p.decided = append(p.decided, decision{w, to, err})
}

// hold makes a want one that is held.
func (p *pump) hold(w *want) {
	w.prev, w.next = nil, p.holds
	if p.holds != nil {
		p.holds.prev = w
	}
	p.holds = w
	p.held += w.n
	p.heldMax = max(p.heldMax, w.max)
}

func (p *pump) letGo(w *want) {
	if w.prev == nil {
		p.holds = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	if p.held -= w.n; p.held == 0 {
		p.heldMax = 0
	}
}

// lose ends all that is held.
func (p *pump) lose() {
	for p.holds != nil {
		w := p.holds
		p.letGo(w)
		w.lost.Store(true)
		p.decide(w, gone, ErrLost)
	}
}

// tick loses what is held if its time is over.
func (p *pump) tick(now time.Duration) {
	if p.held > 0 && now >= p.end() {
		p.lose()
		p.urgent = true
	}
}

// due returns when the pump has something to do: an exchange, or places to lose. It returns never if there is
// nothing.
func (p *pump) due() time.Duration {
	at := never
	if p.held > 0 {
		at = p.end()
	}
	if !p.exchanging {
		at = min(at, p.sendAt())
	}
	return at
}

// sendAt returns when the next exchange is due, unless one is in flight.
func (p *pump) sendAt() time.Duration {
	at := never
	switch {
	case p.urgent:
		at = 0
	case p.held > 0 && len(p.wants) > 0:
		at = min(p.renewAt, p.pollAt)
	case p.held > 0:
		at = p.renewAt
	case len(p.wants) > 0:
		at = p.pollAt
	}
	if at != never {
		at = max(at, p.pauseTo)
	}
	return at
}

// idle reports whether the pump can be forgotten. A store that could not be told that nothing is held any more
// knows after a lease.
func (p *pump) idle(now time.Duration) bool {
	return p.held == 0 && len(p.wants) == 0 && !p.exchanging && (!p.urgent || now >= p.toldAt+p.lease)
}

// claim begins an exchange.
func (p *pump) claim(now time.Duration) window.Claim {
	p.tick(now)
	p.exchanging, p.sentAt, p.term, p.urgent = true, now, termOf(p.lease), false
	p.asked = append(p.asked[:0], p.wants[:min(len(p.wants), window.MaxWants)]...)
	if p.held > 0 || len(p.asked) > 0 {
		p.toldAt = now
	}
	p.claimed = p.claimed[:0]
	for _, w := range p.asked {
		p.claimed = append(p.claimed, window.Want{N: w.n, Max: w.max, Wait: w.wait})
	}
	return window.Claim{Lease: p.lease, Strict: true, Held: p.held, HeldMax: p.heldMax, Wants: p.claimed}
}

// answered ends an exchange with its answer.
func (p *pump) answered(now time.Duration, a *window.Places) {
	p.tick(now) // what is lost stays lost, even if the store has renewed it
	end := p.sentAt + p.term
	if a.Late || now >= end {
		p.failed(now, errLate, false)
		return
	}
	if p.exchanging = false; a.Lost {
		p.lose()
	}
	p.pauseTo, p.pause = 0, 0
	p.deadline.Store(int64(end))
	p.renewAt = p.sentAt + share(p.lease, renewShare)
	left := uint64(0) // the largest Max of wants that wait and were not granted
	for i, w := range p.asked {
		granted := a.Tokens != nil && a.Tokens[i] != 0
		switch {
		case granted && w.state == waiting:
			w.token = a.Tokens[i]
			p.hold(w)
			p.decide(w, held, nil)
		case granted:
			p.urgent = true // nobody has it
		case w.state == waiting && !w.wait:
			p.decide(w, refused, nil)
		case w.state == waiting:
			left = max(left, w.max)
		case w.wait:
			p.urgent = true // the store may hold a place in line for nobody
		}
	}
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool { return w.state != waiting })
	p.behind = left
	poll := min(share(p.lease, pollShare), maxPoll)
	for _, next := range []time.Duration{a.Next, a.Grace} {
		if next > 0 {
			poll = min(poll, max(next, time.Millisecond))
		}
	}
	p.pollAt = now + poll
	p.refuseBehind()
	clear(p.asked)
}

// refuseBehind refuses wants that have come during the exchange and do not wait, if others do, and has the store asked for
// those that need not wait for them.
func (p *pump) refuseBehind() {
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool {
		behind := w.max <= p.behind
		if !behind {
			p.urgent = true
		} else if !w.wait {
			p.decide(w, refused, nil)
		}
		return behind && !w.wait
	})
}

// failed ends an exchange that has failed, or whose answer is of no use. Wants that do not wait have failed,
// too, and so have all if the store is away. Otherwise, the next exchange says everything again.
func (p *pump) failed(now time.Duration, err error, away bool) {
	p.tick(now)
	p.exchanging, p.urgent, p.behind = false, true, 0
	p.claimed = nil // the backend may still read it
	p.pause = min(max(2*p.pause, minPause), maxPause, share(p.lease, pollShare))
	p.pauseTo = now + p.pause
	p.wants = slices.DeleteFunc(p.wants, func(w *want) bool {
		fails := away || !w.wait
		if fails {
			p.decide(w, refused, err)
		}
		return fails
	})
	clear(p.asked)
}

// wake makes the pump ask the store.
func (p *pump) wake() { p.urgent = p.urgent || len(p.wants) > 0 }

// failAll refuses all wants because of an error, and has the store told at once.
func (p *pump) failAll(err error) {
	for _, w := range p.wants {
		p.decide(w, refused, err)
	}
	p.wants, p.urgent, p.pauseTo = nil, true, 0
}
