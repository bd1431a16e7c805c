package backendtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/throttr-go/throttr/window"
)

// method is the name of a method of a backend.
type method string

const (
	check      method = "Check"
	hit        method = "Hit"
	take       method = "Take"
	charge     method = "Charge"
	peek       method = "Peek"
	set        method = "Set"
	reset      method = "Reset"
	giveBack   method = "GiveBack"
	takeAll    method = "TakeAll"
	deleteAll  method = "Delete"
	exchange   method = "Exchange"
	list       method = "List"
	listPlaces method = "ListPlaces"
)

// methods are those that a backend may leave out.
var methods = []method{hit, take, charge, peek, set, reset, giveBack, takeAll, deleteAll, exchange, list, listPlaces}

// counting are the methods that count in one window, or look at it.
var counting = map[method]func(b window.Backend, ctx context.Context, key string, l window.Limit, n uint64) (
	window.Window, error){
	hit: window.Backend.Hit, take: window.Backend.Take, charge: window.Backend.Charge, peek: window.Backend.Peek,
	set: window.Backend.Set,
}

// call is a call of a backend, as data. Which fields it has depends on the method.
type call struct {
	method
	client      int // the number of the client
	window.Take     // its Key, Limit and N
	id          int64
	scales      []time.Duration                   // of Delete
	takes       []window.Take                     // of TakeAll
	claims      []window.Claim                    // of Exchange
	keys        []string                          // of List and ListPlaces
	each        func(l window.Listed) (more bool) // the body of a loop over List, or nil
}

// answer is what a call returns.
type answer struct {
	window.Window
	windows []window.Window       // of TakeAll
	ok      bool                  // of TakeAll and GiveBack
	deleted int                   // of Delete
	places  []window.Places       // of Exchange
	counts  []window.Listed       // of List
	held    []window.ListedPlaces // of ListPlaces
	traits  window.Traits         // of Check
	err     error
}

// String formats the windows of an answer, and what else it may have.
func (a answer) String() string {
	switch {
	case a.err != nil:
		return fmt.Sprint("error ", a.err)
	case a.windows != nil:
		return fmt.Sprintf("%v, %+v", a.ok, a.windows)
	}
	return fmt.Sprintf("%+v, %v, %d", a.Window, a.ok, a.deleted)
}

// of makes the call.
func (c call) of(ctx context.Context, b window.Backend) (a answer) {
	switch c.method {
	case check:
		a.traits, a.err = b.Check(c.Limit)
	case reset:
		a.err = b.Reset(ctx, c.Key, c.Limit)
	case giveBack:
		a.ok, a.err = b.GiveBack(ctx, c.Key, c.Limit, c.N, c.id)
	case takeAll:
		a.windows = make([]window.Window, len(c.takes))
		a.ok, a.err = b.TakeAll(ctx, c.takes, a.windows)
	case deleteAll:
		a.deleted, a.err = b.Delete(ctx, c.Key, c.scales...)
	case exchange:
		a.places = make([]window.Places, len(c.claims))
		a.err = b.Exchange(ctx, c.claims, a.places)
		for i := range a.places {
			a.err = errors.Join(a.err, a.places[i].Err)
		}
	case list:
		a.counts, a.err = collect(b.List(ctx, c.keys...), c.each)
	case listPlaces:
		a.held, a.err = collect(b.ListPlaces(ctx, c.keys...), nil)
	default:
		a.Window, a.err = counting[c.method](b, ctx, c.Key, c.Limit, c.N)
	}
	return a
}

// collect returns what a list has, up to an error, or until each returns false, unless that is nil.
func collect[T any](list iter.Seq2[T, error], each func(T) (more bool)) (all []T, err error) {
	for one, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, one)
		if each != nil && !each(one) {
			break
		}
	}
	return all, nil
}

// String formats the call: Take("k", 10 in 1m0s, fixed window, 3).
func (c call) String() string {
	args := fmt.Sprintf("%.40q, %v, %d", c.Key, c.Limit, c.N)
	switch c.method {
	case giveBack:
		args += fmt.Sprint("; id ", c.id)
	case takeAll:
		args = fmt.Sprintf("%+v", c.takes)
	case deleteAll:
		args = fmt.Sprintf("%.40q, %v", c.Key, c.scales)
	case exchange:
		args = fmt.Sprintf("%+v", c.claims)
	case list, listPlaces:
		args = fmt.Sprintf("%.40q", c.keys)
	}
	text := fmt.Sprintf("%s(%s)", c.method, args)
	if c.client > 0 {
		text += " by the second client"
	}
	return text
}
