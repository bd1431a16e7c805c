package backendtest_test

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Faults of places in flight.
const (
	acceptsClaims    fault = "claims are not checked"
	grantsOnePlace   fault = "a place more than Max is granted"
	grantsSlowly     fault = "places are granted between reading and adding"
	hasNoLease       fault = "places have no lease"
	hasShortLease    fault = "places come back a little early"
	takesLateClaims  fault = "late claims are made"
	addsClaims       fault = "what a process holds is added up"
	believesAll      fault = "what the store does not know is always believed"
	believesNothing  fault = "what the store does not know is always lost"
	refusesRenewals  fault = "what is held over the Max is lost"
	hasNoLine        fault = "nobody waits in line"
	leavesNoRoom     fault = "nobody leaves room for the first in line"
	keepsTheDead     fault = "a process that is silent keeps its position in line"
	joinsPlaceNames  fault = "the places of key and name are those of both together"
	repeatsTokens    fault = "tokens do not grow"
	answersOne       fault = "only the first of several claims is made"
	countsPlaces     fault = "places count as hits"
	hidesNext        fault = "it is not known when places come back"
	overtakesWaiting fault = "a want overtakes one of its process that waits"
	listsAllPlaces   fault = "places of all keys are listed"
	listsNoProcess   fault = "places are listed without who holds them"
	listsOne         fault = "places of one limit are listed"
)

// flightFaults are faults that the tests of places in flight must find.
var flightFaults = map[string][]fault{
	"in flight: a claim that is not valid, or has no context, or comes after Close, does nothing": {acceptsClaims, ignoresContext, worksAfterClose, hidesErrClosed},
	"in flight: up to Max places are held":                                                        {grantsOnePlace, refusesRenewals, addsClaims, repeatsTokens},
	"in flight: a process that is silent for a lease holds nothing":                               {hasNoLease, hasShortLease, hidesNext},
	"in flight: a late claim does nothing, and a later one says the whole truth":                  {takesLateClaims, addsClaims},
	"in flight: what the store does not know is believed as long as it fits":                      {believesAll, believesNothing},
	"in flight: a process waits in line":                                                          {hasNoLine, leavesNoRoom, keepsTheDead, overtakesWaiting},
	"in flight: a process that is silent loses its position in line":                              {keepsTheDead, hasNoLine},
	"in flight: keys and names are independent":                                                   {joinsPlaceNames, sharesNames, foldsKeys, cutsKeys, answersOne, countsPlaces},
	"in flight: ListPlaces returns who holds places or waits":                                     {listsAllPlaces, listsNoProcess, listsOne, hasNoLease, ignoresContext},
	"in flight: concurrent claims are granted up to Max":                                          {grantsSlowly},
	"in flight: random claims agree with a model":                                                 {grantsOnePlace, hasNoLease, takesLateClaims, believesAll, believesNothing, hasNoLine, leavesNoRoom, keepsTheDead, overtakesWaiting, repeatsTokens},
}

func init() {
	for subtest, faults := range flightFaults {
		found = append(found, struct {
			subtest string
			algorithms
			faults []fault
		}{subtest, perKey, faults})
	}
}

// Exchange implements [window.Backend].
func (p *plain) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	err := limits.CheckClaims(claims, places)
	if p.is(acceptsClaims) {
		err = nil
	}
	if err == nil {
		err = p.checkOpen()
	}
	if err == nil {
		err = p.ended(ctx)
	}
	if err != nil {
		return err
	}
	for i := range places {
		if i > 0 && p.is(answersOne) {
			break
		}
		places[i] = p.exchange(claims[i])
	}
	return nil
}

// ListPlaces implements [window.Backend].
func (p *plain) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	if p.is(listsAllPlaces) {
		keys = nil
	}
	return func(yield func(window.ListedPlaces, error) bool) {
		p.ledger.EachPlaces(keys, func(all []window.ListedPlaces) bool {
			if err := p.ended(ctx); err != nil {
				yield(window.ListedPlaces{}, err)
				return false
			}
			for _, l := range all {
				if p.is(listsNoProcess) {
					l.ByProcess = nil
				}
				if !yield(l, nil) || p.is(listsOne) {
					return false
				}
			}
			return true
		})
	}
}

// exchange makes a claim.
func (p *plain) exchange(c window.Claim) window.Places {
	c.Wants = slices.Clone(c.Wants)
	id := p.id(c.Key, window.Limit{Name: c.Name})
	if c.Key, c.Name = id.key, id.name; p.is(joinsPlaceNames) {
		c.Key, c.Name = c.Name+c.Key, ""
	}
	known := p.ledger.Exchange(&window.Claim{Key: c.Key, Name: c.Name}).Used
	for i := range c.Wants {
		w := &c.Wants[i]
		switch p.fault {
		case grantsOnePlace:
			w.Max++
		case hasNoLine:
			w.Wait = false
		case leavesNoRoom:
			if w.Wait {
				w.Wait = i == 0
			} else if known+w.N <= w.Max {
				w.Max = window.MaxPlaces
			}
		case grantsSlowly:
			if known+w.N <= w.Max {
				time.Sleep(100 * time.Microsecond)
				w.Max = window.MaxPlaces
			}
		}
	}
	switch p.fault {
	case hasNoLease:
		c.Lease = window.MaxLease
	case hasShortLease:
		c.Lease -= c.Lease / 50
	case takesLateClaims:
		p.mu.Lock()
		p.last++
		c.Seq = uint64(p.last)
		p.mu.Unlock()
	case believesAll:
		c.Strict = false
	case believesNothing:
		c.Strict = true
		c.HeldMax = 0
	case refusesRenewals:
		if known > c.HeldMax {
			return window.Places{Lost: true, Used: known}
		}
	case countsPlaces:
		p.mu.Lock()
		p.open(p.id("k", window.Limit{Scale: 60e9, Algorithm: window.FixedWindow}), 1)
		p.mu.Unlock()
	case overtakesWaiting:
		slices.SortStableFunc(c.Wants, func(a, b window.Want) int { return int(a.N) - int(b.N) })
	case keepsTheDead:
		c.Lease *= 2
	case addsClaims:
		c.Held += known
	}
	places := p.ledger.Exchange(&c)
	switch {
	case p.is(hidesNext):
		places.Next = 0
	case p.is(repeatsTokens):
		for i, t := range places.Tokens {
			places.Tokens[i] = min(t, 2)
		}
	}
	return places
}
