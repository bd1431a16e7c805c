package fixedwindow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/slot"
)

// cleaning is the way of one key's records to their removal, or to what else is to be done about
// records that are not in use. Many keys are cleaned at a time: they share calls, and they wait
// for their guards together.
type cleaning struct {
	records records
	decide  func(slot.History) slot.Action // is called after each lookup

	history slot.History
	action  slot.Action  // the last one that was decided, or its removal if it was a Claim that has succeeded
	effects slot.Effects // of the action; zero if it was not executed
	again   time.Time    // when to look again
	late    int          // actions that were too late since the last one that led somewhere

	// The results. If it is neither done nor has an error been returned, all actions were too late.
	done    bool      // there is nothing more to do now
	next    time.Time // when to clean the records again; zero if there are none
	removed int       // records
}

// clean cleans keys on a link, as far as is possible without waiting for long: those with about the same guard
// together, and not more at a time than the server is fast enough for. After an error, some keys are not done.
func clean(ctx context.Context, l *link, all []*cleaning) error {
	var classes [linkClasses][]*cleaning
	for _, k := range all {
		c := classOf(k.records.bands.Guard)
		classes[c] = append(classes[c], k)
	}
	var errs [linkClasses]error
	var cleaners sync.WaitGroup
	for c, some := range classes {
		if len(some) > 0 {
			cl := cleaner{link: l, pace: l.paces[c], waiting: some}
			cleaners.Go(func() { errs[c] = cl.run(ctx) })
		}
	}
	cleaners.Wait()
	return errors.Join(errs[:]...)
}

// cleaner cleans keys with about the same guard on one link.
type cleaner struct {
	link    *link
	conn    *conn.Conn // of the last lookup
	pace    *pace
	waiting []*cleaning // not begun
	active  []*cleaning // begun and not done
}

// run cleans the keys until they are done. It begins as many as the server is fast enough for.
func (cl *cleaner) run(ctx context.Context) error {
	defer func() { cl.pace.end(len(cl.active), 0) }()
	for failures := 0; len(cl.waiting)+len(cl.active) > 0; {
		n, changed := cl.pace.begin(len(cl.waiting))
		cl.active = append(cl.active, cl.waiting[:n]...)
		cl.waiting = cl.waiting[n:]
		ready, again := cl.ready()
		if len(ready) == 0 {
			if len(cl.waiting) == 0 {
				changed = nil
			}
			if err := outage.SleepUntil(ctx, again, changed); err != nil {
				return err
			}
			continue
		}
		if err := cl.round(ctx, ready); err != nil {
			if failures++; failures >= maxTries || ctx.Err() != nil {
				return err
			}
			if err := outage.Sleep(ctx, minPause); err != nil {
				return err
			}
		}
		cl.leave()
	}
	return nil
}

// leave leaves keys that are done, or always too late, and makes those wait that are far too many for the server.
func (cl *cleaner) leave() {
	begun := len(cl.active)
	cl.active = slices.DeleteFunc(cl.active, func(k *cleaning) bool { return k.done || k.late >= maxTries })
	if most := cl.pace.bound(); len(cl.active) > 2*most {
		for _, k := range cl.active[most:] {
			k.history = slot.History{}
			k.again = time.Time{}
			cl.waiting = append(cl.waiting, k)
		}
		cl.active = cl.active[:most]
	}
	cl.pace.end(begun-len(cl.active), 0)
}

// ready returns the keys that are to be looked up now. If there are none, it returns when there
// will be, or the zero time if no key is active.
func (cl *cleaner) ready() (ready []*cleaning, again time.Time) {
	now := time.Now()
	for _, k := range cl.active {
		switch {
		case !k.again.After(now):
			ready = append(ready, k)
		case again.IsZero() || k.again.Before(again):
			again = k.again
		}
	}
	return ready, again
}

// round looks keys up once, and executes the actions that follow.
func (cl *cleaner) round(ctx context.Context, ready []*cleaning) error {
	for len(ready) > 0 {
		n, err := cl.pace.take(ctx, len(ready))
		if err != nil {
			return err
		}
		err = cl.batch(ctx, ready[:n])
		cl.pace.end(0, n)
		if err != nil {
			return err
		}
		ready = ready[n:]
	}
	return nil
}

// batch is round for keys that are looked up in one call, so that the actions follow at once.
func (cl *cleaner) batch(ctx context.Context, keys []*cleaning) error {
	start := time.Now()
	c, err := cl.link.connect(ctx)
	if err != nil {
		return err
	}
	if c != cl.conn {
		cl.conn = c
		for _, k := range cl.active {
			k.history = slot.History{}
		}
	}
	if err := cl.lookUp(ctx, keys); err != nil {
		return err
	}
	var acting []*cleaning
	for _, k := range keys {
		k.action = k.decide(k.history)
		switch k.action.Kind {
		case slot.Done:
			k.done = true
		case slot.Look:
			k.again = k.action.At
			if time.Until(k.again) > 2*k.records.bands.Guard {
				k.done, k.next = true, k.again
			}
		default:
			acting = append(acting, k)
		}
	}
	if err := cl.execute(ctx, acting); err != nil {
		return err
	}
	var removing []*cleaning
	for _, k := range acting {
		next, ok := k.records.bands.Claimed(k.history, k.action, k.effects)
		if ok && k.action.Kind == slot.Claim {
			k.action = next
			removing = append(removing, k)
		}
	}
	if err := cl.execute(ctx, removing); err != nil {
		return err
	}
	cl.pace.done(len(keys), time.Since(start), keys[0].records.bands.Guard)
	return nil
}

// lookUp looks both slots of keys up.
func (cl *cleaner) lookUp(ctx context.Context, keys []*cleaning) error {
	call := cl.link.calls.Get()
	look := slot.Action{Kind: slot.Look, Slot: slot.A}
	for _, k := range keys {
		k.records.add(call, look, 0)
	}
	var e slot.Effects
	e.Sent = time.Now()
	if _, err := cl.link.send(ctx, cl.conn, call); err != nil {
		return err
	}
	e.Received = time.Now()
	cl.pace.looked(e.Received.Sub(e.Sent))
	responses := call.Responses
	for _, k := range keys {
		responses = k.records.effects(&e, look, 0, responses)
		k.history = k.records.bands.Extend(k.history, e.Lookup)
	}
	cl.link.calls.Put(call)
	return nil
}

// execute executes the actions of keys in one call. Those that are too late are left out: their keys are looked up again,
// fewer at a time, but not for ever, as others wait for those that share their call of clean.
func (cl *cleaner) execute(ctx context.Context, keys []*cleaning) error {
	call := cl.link.calls.Get()
	var acting []*cleaning
	var deadline, by time.Time
	for _, k := range keys {
		k.late++
		k.effects = slot.Effects{}
		last := k.records.bands.Deadline(k.action)
		if !time.Now().Before(last) {
			continue
		}
		acting = append(acting, k)
		k.records.add(call, k.action, 0)
		deadline, by = earlier(deadline, last), earlier(by, k.action.By)
	}
	if len(acting) < len(keys) {
		cl.pace.late(keys[0].records.bands.Guard)
	}
	if len(acting) == 0 {
		cl.link.calls.Put(call)
		return nil
	}
	sent := time.Now()
	if _, err := cl.link.sendBy(ctx, cl.conn, call, deadline, by); err != nil {
		if err == errAgain || errors.Is(err, errLate) {
			cl.pace.late(keys[0].records.bands.Guard)
		}
		if err == errAgain {
			return nil
		}
		return err
	}
	responses := call.Responses
	for _, k := range acting {
		k.effects.Sent = sent
		responses = k.records.effects(&k.effects, k.action, 0, responses)
		k.removed += k.effects.Purged
		switch k.action.Kind {
		case slot.Claim, slot.Refill:
			k.late-- // the removal may be too late, time and again
		default:
			k.late = 0
		}
	}
	cl.link.calls.Put(call)
	return nil
}

// earlier returns the earlier of two times, of which a zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
