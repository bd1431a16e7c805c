package fixedwindow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
)

// cleaning is the way of one key's records to their removal, or to what else is to be done about
// records that are not in use. Many keys are cleaned at a time: they share calls, and they wait
// for their guards together.
type cleaning[T codec.Value] struct {
	records records[T]
	// begin is called before each lookup, and decide after it.
	begin  func()
	decide func(slot.History) slot.Action

	history slot.History
	again   time.Time // when to look again

	// The results.
	done    bool      // there is nothing more to do now
	absent  bool      // there are no records
	next    time.Time // when to clean the records again, unless they are absent
	removed int       // records
}

// cleaner cleans many keys on one link.
type cleaner[T codec.Value] struct {
	link     *link[T]
	requests int // the most requests of a call
	conn     *conn.Conn[T]
}

// clean cleans keys, as far as is possible without waiting for long: those with about the same guard
// together, and not more at a time than the server is fast enough for. After an error, some of them
// are not done.
func (cl *cleaner[T]) clean(ctx context.Context, all []*cleaning[T]) error {
	var classes [linkClasses][]*cleaning[T]
	for _, k := range all {
		c := classOf(k.records.bands.Guard)
		classes[c] = append(classes[c], k)
	}
	for c, some := range classes {
		p := cl.link.paces[c]
		for len(some) > 0 {
			n, err := p.begin(ctx, len(some))
			if err != nil {
				return err
			}
			err = cl.cleanSome(ctx, some[:n], p)
			p.end(n)
			if err != nil {
				return err
			}
			some = slices.DeleteFunc(some, func(k *cleaning[T]) bool { return k.done })
		}
	}
	return nil
}

// cleanSome cleans keys until they are done, or until they turn out to be too many for the server.
func (cl *cleaner[T]) cleanSome(ctx context.Context, all []*cleaning[T], p *pace) error {
	for failures := 0; !p.exceeded(len(all)); {
		ready, again := cl.ready(all)
		if len(ready) == 0 {
			if again.IsZero() {
				return nil
			}
			if err := backoff.Sleep(ctx, time.Until(again)); err != nil {
				return err
			}
			continue
		}
		if err := cl.round(ctx, all, ready); err != nil {
			if failures++; failures >= maxTries || ctx.Err() != nil {
				return err
			}
			if err := backoff.Sleep(ctx, minPause); err != nil {
				return err
			}
		}
	}
	return nil
}

// ready returns the keys that are to be looked up now. If there are none, it returns when there
// will be, or the zero time if all keys are done.
func (cl *cleaner[T]) ready(all []*cleaning[T]) (ready []*cleaning[T], again time.Time) {
	now := time.Now()
	for _, c := range all {
		switch {
		case c.done:
		case !c.again.After(now):
			ready = append(ready, c)
		case again.IsZero() || c.again.Before(again):
			again = c.again
		}
	}
	return ready, again
}

// round looks keys up once, and executes the actions that follow.
func (cl *cleaner[T]) round(ctx context.Context, all, ready []*cleaning[T]) error {
	c, err := cl.link.connect(ctx)
	if err != nil {
		return err
	}
	if c != cl.conn {
		cl.conn = c
		for _, k := range all {
			k.history = slot.History{}
		}
	}
	if err := cl.lookUp(ctx, ready); err != nil {
		return err
	}
	var steps []step[T]
	for _, k := range ready {
		a := k.decide(k.history)
		switch a.Kind {
		case slot.Done:
			k.done, k.absent = true, true
		case slot.Again:
			k.again = a.At
			if time.Until(a.At) > 2*k.records.bands.Guard {
				k.done, k.next = true, a.At
			}
		default:
			steps = append(steps, step[T]{key: k, action: a})
		}
	}
	if err := cl.execute(ctx, steps); err != nil {
		return err
	}
	var removals []step[T]
	for i := range steps {
		if next, ok := steps[i].claimed(); ok {
			removals = append(removals, next)
		}
	}
	return cl.execute(ctx, removals)
}

// lookUp looks both slots of keys up.
func (cl *cleaner[T]) lookUp(ctx context.Context, ready []*cleaning[T]) error {
	for len(ready) > 0 {
		call := cl.link.calls.Get()
		some := ready[:min(len(ready), max(1, cl.requests/2))]
		for _, k := range some {
			k.begin()
			k.records.add(call, slot.Request{Verb: slot.Query, Slot: slot.A}, slot.Request{Verb: slot.Query, Slot: slot.B})
		}
		l := slot.Lookup{Sent: time.Now()}
		if _, err := cl.link.do(ctx, cl.conn, call); err != nil {
			return err
		}
		l.Received = time.Now()
		cl.link.paces[classOf(some[0].records.bands.Guard)].looked(len(some), l.Received.Sub(l.Sent), some[0].records.bands.Guard)
		for i, k := range some {
			l.Slots = [2]slot.Observation{k.records.observe(call.Responses[2*i]), k.records.observe(call.Responses[2*i+1])}
			k.history = k.records.bands.Extend(k.history, l)
		}
		cl.link.calls.Put(call)
		ready = ready[len(some):]
	}
	return nil
}

// step is an action of one key.
type step[T codec.Value] struct {
	key      *cleaning[T]
	action   slot.Action
	requests []slot.Request
	effects  effects // zero if it was not executed
}

// claimed returns the removal of the slots that a step has claimed. It returns false if there are none.
func (s *step[T]) claimed() (next step[T], ok bool) {
	if s.action.Kind != slot.Claim {
		return next, false
	}
	a, ok := s.key.records.bands.Claimed(s.key.history, s.action, s.effects.claimed, s.effects.shown, s.effects.at.from)
	return step[T]{key: s.key, action: a}, ok
}

// execute executes actions. Those that are too late are left out: their keys are looked up again.
func (cl *cleaner[T]) execute(ctx context.Context, steps []step[T]) error {
	for len(steps) > 0 {
		n, err := cl.executeSome(ctx, steps)
		if err != nil && err != errAgain {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// executeSome executes the first of some actions in one call, and returns how many they are.
func (cl *cleaner[T]) executeSome(ctx context.Context, steps []step[T]) (n int, err error) {
	call := cl.link.calls.Get()
	var deadline, by time.Time
	for n < len(steps) && call.Len() < cl.requests {
		s := &steps[n]
		n++
		if last := s.key.records.bands.Deadline(s.action); time.Now().Before(last) {
			s.requests = s.key.records.bands.Requests(nil, s.action, 0)
			s.key.records.add(call, s.requests...)
			deadline, by = earlier(deadline, last), earlier(by, s.action.By)
		}
	}
	if by.IsZero() {
		cl.link.calls.Put(call)
		return n, nil
	}
	sent := time.Now()
	if _, err := cl.link.doBy(ctx, cl.conn, call, deadline, by); err != nil {
		return n, err
	}
	responses := call.Responses
	for i := range steps[:n] {
		s := &steps[i]
		s.effects = s.key.records.effectsOf(s.action, s.requests, responses[:len(s.requests)])
		s.effects.at.from = sent
		s.key.removed += s.effects.purged
		responses = responses[len(s.requests):]
	}
	cl.link.calls.Put(call)
	return n, nil
}

// earlier returns the earlier of two times, of which a zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Remover removes the records of one server that an [Inspector] has decided to remove. Those of slots
// take several lookups and actions, which go out on a link.
type Remover[T codec.Value] struct {
	link     *link[T]
	requests int // the most requests of a call
}

var _ sweep.Remover = (*Remover[uint16])(nil)

// NewRemover returns a Remover. Close it after use.
func NewRemover[T codec.Value](s Server[T], calls *conn.CallPool[T], maxInFlight int) *Remover[T] {
	return &Remover[T]{link: newLink(s, calls), requests: max(1, min(chunkSize, maxInFlight))}
}

// Remove implements [sweep.Remover].
func (r *Remover[T]) Remove(ctx context.Context, targets []string) (removed int, err error) {
	var cleanings []*cleaning[T]
	for _, t := range targets {
		n, ok := ParseName([]byte(t))
		if !ok {
			return 0, fmt.Errorf("fixedwindow: %q is not a target", t)
		}
		bands, ok := slot.BandsFor(n.Scale, maxValue[T]())
		if !ok {
			return 0, fmt.Errorf("fixedwindow: %q is not a target", t)
		}
		c := &cleaning[T]{records: records[T]{&bands, n.slotNames()}, begin: func() {}}
		c.decide = func(h slot.History) slot.Action { return bands.Clean(h, bands.Watch) }
		cleanings = append(cleanings, c)
	}
	c := cleaner[T]{link: r.link, requests: r.requests}
	err = c.clean(ctx, cleanings)
	for _, k := range cleanings {
		removed += k.removed
	}
	return removed, err
}

// Close ends the connection.
func (r *Remover[T]) Close() { r.link.close() }
