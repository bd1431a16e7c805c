package postgresbackend

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// verb is what a call does with a record. Its text is the name of the call.
type verb string

const (
	hit      verb = "hit"
	take     verb = "take"
	charge   verb = "charge"
	peek     verb = "peek"
	set      verb = "set"
	giveBack verb = "give back"
	reset    verb = "reset"
)

// count is a count, and the rule of a call for it.
type count struct {
	id
	algorithm *algorithm.Algorithm
	rule      algorithm.Rule
	calendar  *limits.Calendar
}

// part is what a call does with a count.
type part struct {
	count
	n      uint64
	row    *row          // in the last request
	window window.Window // after it
}

// call is a call of a method. Several parts are takes, all or none, or resets.
type call struct {
	verb    verb
	parts   []part
	taken   int64 // the ID of what is given back
	given   bool  // it is given back; all takes are granted
	ended   int   // how many windows have been ended
	changed bool  // others have changed a row: the call has to be made again
	err     error
}

type (
	batched = batch.Call[call]
	batcher = batch.Batcher[id, call]
)

// newPart returns what a call does with the count of a key and limit, which has been checked.
func newPart(key string, l *window.Limit, n uint64) part {
	c := count{id: idOf(key, l), algorithm: algorithm.Of(l.Algorithm), rule: algorithm.RuleOf(l)}
	if l.Calendar != 0 {
		c.calendar, _ = limits.CalendarOf(l)
	}
	return part{count: c, n: n}
}

// decide makes the call on the records of its rows.
func (c *call) decide(t algorithm.Time) {
	c.given = false
	c.ended = 0
	c.err = nil
	for i := range c.parts {
		if c.err = c.parts[i].row.err; c.err != nil {
			return
		}
	}
	if len(c.parts) > 1 && c.verb == take && !c.allFit(t) {
		return
	}
	for i := range c.parts {
		c.do(&c.parts[i], t)
	}
}

// allFit reports whether all takes would be granted. If not, the windows describe what there is.
func (c *call) allFit(t algorithm.Time) bool {
	fit := true
	for i := range c.parts {
		p := &c.parts[i]
		t.Calendar = p.calendar
		p.describe(p.peek(t, p.n), t)
		fit = fit && !p.window.Refused
	}
	return fit
}

// do does a part of the call.
func (c *call) do(p *part, t algorithm.Time) {
	t.Calendar = p.calendar
	r := &p.row.record
	switch c.verb {
	case peek:
		p.describe(p.peek(t, p.n), t)
	case take:
		p.take(t)
		c.given = !p.window.Refused
	case hit:
		if p.algorithm.Rolling {
			p.take(t)
			return
		}
		p.charge(t)
	case charge:
		p.charge(t)
	case set:
		p.end(t)
		p.charge(t)
	case giveBack:
		if c.given = p.algorithm.GiveBack(r, t, c.taken, p.n); c.given {
			p.row.change(t)
		}
	case reset:
		if p.algorithm.Left(r, t) > 0 {
			c.ended++
		}
		p.end(t)
	}
}

// peek returns what a take of n would, and changes nothing.
func (p *part) peek(t algorithm.Time, n uint64) algorithm.State {
	scratch := p.row.record
	return p.algorithm.Peek(&scratch, p.rule, t, n)
}

// take counts n if it fits. If it does not, and another Max is stored, that is changed: a token bucket is then refilled
// by it.
func (p *part) take(t algorithm.Time) {
	before := p.row.record.Rule
	state := p.algorithm.Take(&p.row.record, p.rule, t, p.n, newSeries())
	if state.Wait == 0 && p.n > 0 || before != p.row.record.Rule && !p.row.record.Empty() {
		p.row.change(t)
	}
	p.describe(state, t)
}

// charge counts n, whatever the limit is.
func (p *part) charge(t algorithm.Time) {
	n := p.n
	if p.algorithm.Logs {
		n = min(n, MaxLog-min(MaxLog, p.peek(t, p.n).Count))
	}
	if n == 0 && p.algorithm.Rolling {
		p.describe(p.peek(t, 0), t)
		return
	}
	state := p.algorithm.Charge(&p.row.record, p.rule, t, n, newSeries())
	p.row.change(t)
	p.describe(state, t)
}

// end ends what is counted.
func (p *part) end(t algorithm.Time) {
	if !p.row.record.Empty() {
		p.row.record.End()
		p.row.change(t)
	}
}

// describe makes the window that of a state.
func (p *part) describe(s algorithm.State, t algorithm.Time) {
	p.window = window.Window{Count: s.Count, RetryAfter: s.Wait, Refused: s.Wait > 0}
	if s.Left > 0 {
		p.window.ID = s.ID
		p.window.Left = s.Left
		p.window.ExpiresAt = time.Unix(t.Sec, t.Nano).Add(s.Left)
	}
}

// newSeries returns a number that no other call has.
func newSeries() uint64 { return rand.Uint64() | 1 }

// maxTries is how often a call is made without locks, while others change its row.
const maxTries = 3

// do has a call made. It returns when the timeout is over, however often the call is queued and made again until then.
func (b *Backend) do(ctx context.Context, c *batched) error {
	if b.life.Err() != nil {
		return window.ErrClosed
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent, err := b.try(bounded, c)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == bounded.Err():
		err = errSlow
	case sent:
		return err
	}
	if sent {
		return fmt.Errorf("%w; it may have been counted", err)
	}
	return fmt.Errorf("%w; it was not sent", err)
}

// try has a call made without locks, and if others change its row meanwhile, with them: it and, for a second, the
// calls for the same key. It returns whether the call was sent.
func (b *Backend) try(ctx context.Context, c *batched) (sent bool, err error) {
	first := c.Value.parts[0].key
	lockUntil := &b.lockUntil[maphash.String(b.seed, first)%uint64(len(b.lockUntil))]
	if len(c.Value.parts) == 1 && lockUntil.Load() <= time.Now().UnixNano() {
		for range maxTries {
			c.Value.changed = false
			sent, err = b.free.Do(ctx, c)
			if err != nil {
				return sent, err
			}
			if !c.Value.changed {
				return true, c.Value.err
			}
		}
		lockUntil.Store(time.Now().Add(time.Second).UnixNano())
	}
	sent, err = b.locking.Do(ctx, c)
	if err == nil {
		err = c.Value.err
	}
	return sent, err
}
