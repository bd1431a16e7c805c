package backendtest_test

import (
	"context"
	"math"
	"time"

	"github.com/throttr-go/throttr/window"
)

var _ window.Taker = (*plain)(nil)

// Faults of takes.
const (
	refusalCounts     fault = "a take that is refused counts"
	refusalCountsPart fault = "a take that is refused counts what is left"
	refusalOpens      fault = "a take that is refused opens a window"
	takesTooMuch      fault = "a take is granted if the limit is not reached"
	refusesLast       fault = "a take up to the limit is refused"
	takeOfNoneOpens   fault = "a take of 0 opens a window"
	takeOfNoneRefused fault = "a take of 0 is refused in a full window"
	takesSlowly       fault = "takes are counted between reading and adding"
	keepsFirst        fault = "several takes up to the refused one count"
	opensFirst        fault = "several takes open the windows before the refused one"
	checksEach        fault = "several takes of one window are checked one by one"
	takesOneByOne     fault = "several takes are made one by one, and given back if one is refused"
	givesNothingBack  fault = "GiveBack gives nothing back"
	givesBackTwice    fault = "GiveBack gives back twice"
	givesBackToAny    fault = "GiveBack ignores the ID"
	endsEmpty         fault = "a window of which all is given back ends"
	givesBackSlowly   fault = "GiveBack subtracts between reading and writing"
	deniesGivingBack  fault = "GiveBack returns false"
	repeatsIDs        fault = "the ID is the start"
	forgetsIDs        fault = "Get returns no ID"
	changesIDs        fault = "a hit changes the ID"
	acceptsHighTakes  fault = "limits of takes over MaxCount are accepted"
)

// identify sets the ID of a window that was opened. p.mu is held.
func (p *plain) identify(w *window.Window) {
	if p.last++; p.is(repeatsIDs) {
		w.ID = w.StartedAt.UnixNano()
		return
	}
	w.ID = p.last
}

func (p *plain) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (window.Window, bool, error) {
	windows := make([]window.Window, 1)
	granted, err := p.TakeAll(ctx, []window.Limit{{Key: key, Scale: scale, Limit: limit, N: n}}, windows)
	return windows[0], granted, err
}

// TakeAll implements window.Taker.
func (p *plain) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (bool, error) {
	for _, l := range limits {
		if p.is(acceptsHighTakes) {
			l.Limit = min(l.Limit, p.maxCount)
		}
		if err := p.check(l.Scale, l.Limit); err != nil {
			return false, err
		}
	}
	if err := p.ended(ctx); err != nil && !p.is(checksContextTooLate) {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	granted := p.takeAll(limits)
	for i, l := range limits {
		windows[i] = window.Window{}
		if w := p.active(p.id(l.Key, l.Scale)); w != nil {
			windows[i] = p.state(w, l.Scale)
		}
	}
	return granted, p.ended(ctx)
}

// takeAll makes all takes or none. p.mu is held.
func (p *plain) takeAll(limits []window.Limit) bool {
	granted := true
	for i, l := range limits {
		n, _ := window.Total(limits, i)
		if p.is(checksEach) {
			n = l.N
		}
		if p.fits(l, n) {
			if p.is(keepsFirst) || p.is(takesOneByOne) {
				p.add(l, l.N)
			}
			if p.is(opensFirst) {
				p.add(l, 0)
			}
			if p.is(takesOneByOne) {
				p.unlockBriefly()
			}
			continue
		}
		granted = false
		switch p.fault {
		case takesOneByOne:
			p.unlockBriefly()
			for _, l := range limits[:i] {
				if w := p.active(p.id(l.Key, l.Scale)); w != nil {
					w.Count -= min(l.N, w.Count)
				}
			}
			return false
		case keepsFirst:
			return false
		case refusalCounts:
			p.add(l, l.N)
		case refusalCountsPart:
			if w := p.active(p.id(l.Key, l.Scale)); w != nil {
				w.Count = max(w.Count, l.Limit)
			}
		case refusalOpens:
			p.add(l, 0)
		}
	}
	if !granted || p.is(keepsFirst) || p.is(takesOneByOne) {
		return granted
	}
	if p.is(takesSlowly) {
		p.unlockBriefly()
	}
	for _, l := range limits {
		if l.N > 0 || p.is(takeOfNoneOpens) {
			p.add(l, l.N)
		}
	}
	return true
}

// fits reports whether n fits a window. p.mu is held.
func (p *plain) fits(l window.Limit, n uint64) bool {
	count := uint64(0)
	if w := p.active(p.id(l.Key, l.Scale)); w != nil {
		count = w.Count
	}
	switch p.fault {
	case takesTooMuch:
		return count < l.Limit || n == 0 && count == l.Limit
	case refusesLast:
		return n < l.Limit && count < l.Limit-n || n == 0 && count <= l.Limit
	case takeOfNoneRefused:
		return count < l.Limit && n <= l.Limit-count
	}
	return n <= l.Limit && count <= l.Limit-n
}

// add counts n. p.mu is held.
func (p *plain) add(l window.Limit, n uint64) {
	id := p.id(l.Key, l.Scale)
	w := p.active(id)
	if w == nil {
		p.open(id, l.Scale, n)
		return
	}
	if w.Count += n; w.Count < n {
		w.Count = math.MaxUint64
	}
	w.UpdatedAt = p.mu.now
}

// GiveBack implements window.Taker.
func (p *plain) GiveBack(ctx context.Context, key string, scale time.Duration, windowID int64, n uint64) (bool, error) {
	if err := p.check(scale); err != nil {
		return false, err
	}
	if err := p.ended(ctx); err != nil && !p.is(checksContextTooLate) {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.id(key, scale)
	w := p.active(id)
	if w == nil || w.ID != windowID && !p.is(givesBackToAny) {
		return false, p.ended(ctx)
	}
	count := w.Count - min(n, w.Count)
	switch p.fault {
	case givesNothingBack:
		return true, p.ended(ctx)
	case givesBackTwice:
		count -= min(n, count)
	case givesBackSlowly:
		p.unlockBriefly()
	case endsEmpty:
		if count == 0 {
			delete(p.windows, id)
		}
	}
	w.Count = count
	return !p.is(deniesGivingBack), p.ended(ctx)
}
