package slot

import (
	"time"
)

// client is a simulated client of one key and scale. Two actors run it: one makes hits, the other
// is the janitor.
type client struct {
	*world
	name   string
	ids    int
	dead   bool
	done   bool      // it makes no more hits
	known  view      // the open window, as it knows it
	opened time.Time // when it last opened a window, at the latest
	duty   bool      // its janitor has records to remove, or may have
	duties int       // its actions: a lookup of the janitor before the last one is repeated
	idle   *actor    // the janitor, while it has no duty
}

// view is what a client knows of the open window.
type view struct {
	Window
	id   int   // identifies the window
	conn *conn // where hits of it were counted; nil if there were none
}

// lookups are those of an actor, on one connection.
type lookups struct {
	conn    *conn
	history History
}

// attempt is a call that counts hits.
type attempt struct {
	n       uint64
	window  Window // as the call showed it
	id      int
	granted uint64
	opened  *opened // the window in which they were counted
	conn    *conn
}

// learn makes a window the known one, as package fixedwindow does. It gets a new ID, unless it is
// certainly the one that was known.
func (c *client) learn(w Window, on *conn) {
	v := view{Window: w, conn: on}
	if !c.known.Until.IsZero() {
		old := c.known
		if v.conn == nil {
			v.conn = old.conn
		}
		same := v.Slot == old.Slot && v.Narrow(&old.Times, c.bands.Guard)
		if c.off[ruleReturnSame] {
			same = v.Slot == old.Slot && !old.Until.After(w.Latest) && !w.Until.After(old.Latest)
		}
		if same && (old.conn == nil || v.conn == old.conn) {
			v.id = old.id
		}
	}
	if v.id == 0 {
		c.ids++
		v.id = c.ids
	}
	c.known = v
	if s := &c.server; s.open != nil && s.open.slot == w.Slot && v.Until.After(epoch.Add(s.ends())) {
		c.fail("%s takes the window to be open until %v, but it ends at %v", c.name, v.Until.Sub(epoch), s.ends())
	}
}

// forget forgets the known window.
func (c *client) forget() { c.known = view{} }

// hits hits, returns some of the hits, and resets.
func (c *client) hits(a *actor) {
	f, pool := lookups{conn: a.dial()}, a.dial()
	for range c.steps {
		c.rest(a)
		switch {
		case c.chance(c.resetRate):
			c.reset(a, &f)
		default:
			n := 1 + uint64(c.rng.IntN(int(c.largestHit)))
			if c.chance(c.emptyRate) {
				n = 0
			}
			at, ok := c.hit(a, n, &f, &pool)
			switch {
			case !ok || at.granted == 0 || !c.chance(c.returnRate):
			case c.chance(c.laterRate):
				c.returnLater(a, at)
			default:
				c.returnHits(a, at)
			}
		}
	}
	c.done = true
	if c.chance(c.discardRate) {
		c.search(a, &f, c.bands.Discard)
	}
}

// hit makes n hits. It returns false if it is not known what has become of them.
func (c *client) hit(a *actor, n uint64, f *lookups, pool **conn) (attempt, bool) {
	f.history = History{}
	shut, faults := never, c.faults
	first := ID(c.rng.IntN(2))
	for {
		if !c.known.Open(c.time()) {
			if !c.extended(a, f, first) {
				a.sleep(c.bands.Guard / 4)
				continue
			}
			l := f.history.Last
			w, live := c.bands.Live(l)
			if !live && shut == never {
				shut = c.now
			} else if live && shut != never {
				c.waited(c.now-shut, faults)
				shut = never
			}
			if live {
				c.learn(w, nil)
			}
			if _, ok := c.bands.Untidy(l); ok {
				c.addDuty(false)
			}
			switch action := c.decide(c.bands.ToOpen, f.history); action.Kind {
			case Join:
			case Look:
				first = action.Slot
				a.sleepUntil(action.At.Sub(epoch))
				continue
			case Open, Create:
				if c.chance(0.2) {
					a.sleep(c.delay(c.bands.Guard / 2))
				}
				if c.off[ruleConnection] {
					c.redial(&f.conn)
				}
				if at, ok, again := c.count(a, f.conn, action, n); !again {
					c.waited(c.now-shut, faults)
					return at, ok
				}
				f.history = History{}
				a.sleep(c.upTo(c.bands.Guard / 4))
				continue
			default:
				c.addDuty(false)
				c.remove(a, f, action)
				continue
			}
		}
		c.redial(pool)
		if at, ok, again := c.count(a, *pool, c.bands.Join(c.known.Slot, c.known.Until), n); !again {
			return at, ok
		}
		f.history = History{}
	}
}

// waited notes for how long a hit found no open window and could open none.
func (c *client) waited(d time.Duration, faults int) {
	if c.faults == faults && d > c.longest {
		c.longest = d
	}
}

// count sends a call that counts n hits. again says that they were not counted.
func (c *client) count(a *actor, on *conn, action Action, n uint64) (at attempt, ok, again bool) {
	if action.Kind != Join {
		c.addDuty(true)
	}
	ops := c.varyOps(action, c.bands.Requests(nil, action, n))
	by, bounded := c.by(action), action.Kind != Join
	if !bounded && c.off[ruleResponseBy] {
		by += 3 * c.bands.Scale
	}
	b := a.send(on, action, ops, by, bounded)
	if bounded {
		c.addDuty(true)
		c.opened = c.time()
	}
	if !b.ok {
		c.forget()
		return at, false, false
	}
	var seen, add response
	for i, op := range ops {
		switch {
		case op.Op == Decrease || op.Op == Insert:
			add = b.responses[i]
			seen = add
		case op.Op == Query:
			seen = b.responses[i]
		}
	}
	outcome, w := c.bands.Result(action, n, b.Effects)
	if c.off[ruleSeenLive] && b.Added[action.Slot] {
		outcome = Counted
		w = c.known.Window
		w.Slot, w.Count = action.Slot, seen.record.Count
	}
	if outcome == Missed {
		c.forget()
		return at, false, true
	}
	c.learn(w, on)
	if outcome == Full {
		return at, false, false
	}
	at = attempt{n: n, window: w, id: c.known.id, opened: seen.window, conn: on}
	if before := w.Count - n; before < c.limit {
		at.granted = min(n, c.limit-before)
	}
	c.grant(a, at, add, seen, b.torn)
	return at, true, false
}

// addDuty has the janitor look at the records: this client may have made them, or one is untidy.
func (c *client) addDuty(opens bool) {
	c.duty = true
	c.duties++
	if opens {
		c.opened = epoch.Add(never / 2)
	}
	if c.idle != nil {
		c.idle.wake(c.now)
	}
}

// grant grants hits, and checks that they were counted in the window in which they are granted,
// once.
func (c *client) grant(a *actor, at attempt, add, seen response, torn bool) {
	if at.granted == 0 {
		return
	}
	w := at.opened
	if w == nil || add.life != seen.life {
		c.fail("%s is granted hits that were not counted in the window", a.name)
		return
	}
	w.held += at.granted
	c.log("%s is granted %d hits of window %d, up to place %d: %d held", a.name, at.granted, w.id, at.window.Count, w.held)
	if w.held > c.limit {
		c.fail("window %d: %d granted, limit %d", w.id, w.held, c.limit)
	}
	if w.held > w.count {
		c.fail("window %d: %d held, %d counted", w.id, w.held, w.count)
	}
	if s := &c.server; s.open == w {
		ends := epoch.Add(s.ends())
		if at.window.Until.After(ends) || at.window.Latest.Add(c.bands.Guard).Before(ends) {
			c.fail("%s expects the end of the window between %v and %v; it is at %v", a.name, at.window.Until.Sub(epoch), at.window.Latest.Sub(epoch), s.ends())
		}
	}
	if c.returnRate > 0 || torn {
		return // places are used again, or the calls of others are counted in between
	}
	for i := range at.n {
		place := at.window.Count - i
		if w.places[place] {
			c.fail("window %d: place %d given twice", w.id, place)
		}
		w.places[place] = true
	}
}

// returnHits returns hits.
func (c *client) returnHits(a *actor, at attempt) {
	if c.chance(0.5) {
		a.sleep(c.delay(c.bands.Guard))
	}
	action, ok := c.bands.GiveBack(at.window, c.time())
	by := c.by(action)
	if c.off[ruleReturnInTime] {
		ok, by = true, c.now+2*c.bands.Scale
	}
	if !ok {
		return
	}
	n := 1 + uint64(c.rng.IntN(int(at.granted)))
	if at.opened != nil {
		at.opened.held -= n
	}
	on := at.conn
	if c.off[ruleReturnConnection] {
		c.redial(&on)
	}
	b := a.send(on, action, c.bands.Requests(nil, action, n), by, true)
	if !b.ok && c.off[ruleReturnOnce] {
		again := a.dial()
		a.send(again, action, c.bands.Requests(nil, action, n), by, true)
	}
}

// returnLater returns hits to the window with an ID, which is read first.
func (c *client) returnLater(a *actor, at attempt) {
	a.sleep(c.upTo(c.bands.Scale))
	n := 1 + uint64(c.rng.IntN(int(at.granted)))
	known := c.known
	if known.id != at.id || known.conn != at.conn || !known.Open(c.time()) {
		return
	}
	read := Action{Kind: Read, Slot: known.Slot}
	b := a.send(at.conn, read, c.bands.Requests(nil, read, 0), never, false)
	if !b.ok {
		return
	}
	w, live := c.bands.WindowOf(known.Slot, b.Lookup)
	if !live || w.Count < n {
		return
	}
	c.learn(w, nil)
	action, ok := c.bands.GiveBack(c.known.Window, c.time())
	if !ok || c.known.id != at.id {
		return
	}
	if of := b.responses[0].window; of != at.opened {
		c.fail("%s gives hits of window %d back to another one", a.name, at.opened.id)
		return
	}
	at.opened.held -= n
	c.returned++
	a.send(at.conn, action, c.bands.Requests(nil, action, n), c.by(action), true)
}

// lookup looks both slots up, beginning with the first one.
func (c *client) lookup(a *actor, on *conn, first ID) (Lookup, bool) {
	m := Action{Kind: Look, Slot: first}
	b := a.send(on, m, c.bands.Requests(nil, m, 0), never, false)
	return b.Lookup, b.ok
}

// extended looks both slots up once more, and reports whether that has succeeded.
func (c *client) extended(a *actor, f *lookups, first ID) bool {
	if c.redial(&f.conn) {
		f.history = History{}
	}
	l, ok := c.lookup(a, f.conn, first)
	if !ok {
		f.history = History{}
		return false
	}
	f.history = c.extend(f.history, l)
	return true
}

// remove makes an action towards removing records.
func (c *client) remove(a *actor, f *lookups, action Action) {
	h := f.history
	b := a.send(f.conn, action, c.bands.Requests(nil, action, 0), c.by(action), true)
	if !b.ok || action.Kind != Claim {
		return
	}
	if c.off[ruleClaimAdded] {
		b.Added = [2]bool{true, true}
	}
	next, ok := c.bands.Claimed(h, action, b.Effects)
	if c.off[ruleRetireFirst] && b.Slots[A].Count == h.Last.Slots[A].Count+1 && c.bands.State(b.Slots[A]) == Over {
		ok, next.Slots[A] = true, true
	}
	if ok {
		if c.off[ruleOnlyClaimed] {
			next.Slots = [2]bool{true, true}
		}
		a.send(f.conn, next, c.bands.Requests(nil, next, 0), c.by(next), true)
	}
}

// reset ends the open window.
func (c *client) reset(a *actor, f *lookups) {
	var ends Window
	c.search(a, f, func(h History) Action {
		action := c.decide(func(h History) Action { return c.bands.Reset(h, &ends) }, h)
		switch {
		case action.Kind == Look && c.off[ruleResetChain] && c == c.clients[0]:
			action.At = c.time().Add(c.bands.Guard + c.upTo(6*c.bands.Guard))
		case action.Kind != Look && action.Kind != Done:
			c.addDuty(action.Kind == End)
		}
		return action
	})
	c.forget()
}

// search looks both slots up again and again, and executes what next returns, until that is Done.
func (c *client) search(a *actor, f *lookups, next func(History) Action) {
	f.history = History{}
	for range 20 {
		if !c.extended(a, f, ID(c.rng.IntN(2))) {
			continue
		}
		switch action := next(f.history); action.Kind {
		case Done:
			return
		case Look:
			a.sleepUntil(action.At.Sub(epoch))
		default:
			c.remove(a, f, action)
			c.addDuty(action.Kind == End)
			if action.Kind == End {
				c.opened = c.time()
			}
		}
	}
}

// janitor removes records that are idle for long.
func (c *client) janitor(a *actor) {
	f := lookups{conn: a.dial()}
	for {
		if !c.duty {
			c.idle = a
			a.pause()
			c.idle = nil
			continue
		}
		duties := c.duties
		if !c.extended(a, &f, ID(c.rng.IntN(2))) {
			continue
		}
		if duties != c.duties {
			a.sleep(c.bands.Guard)
			continue
		}
		below := c.bands.Below(f.history.Last, c.opened)
		switch action := c.decide(func(h History) Action { return c.bands.Clean(h, below) }, f.history); action.Kind {
		case Done:
			c.duty = false
		case Look:
			c.idle = a
			at := action.At.Sub(epoch) + c.delay(c.bands.Guard)
			if c.restless > 0 && !c.done {
				at = min(at, c.now+c.upTo(c.restless))
			}
			a.sleepUntil(at)
			c.idle = nil
		default:
			c.remove(a, &f, action)
		}
	}
}

// redial replaces a connection that has ended, and reports whether it did.
func (c *client) redial(on **conn) bool {
	if c.alive(*on) {
		return false
	}
	*on = c.dial()
	return true
}

// by returns until when an action may be executed.
func (c *client) by(m Action) time.Duration {
	by := m.By.Sub(epoch)
	if c.off[ruleGuard] && m.Kind != Join {
		by += 3 * c.bands.Scale
	}
	return by
}

// rest lets time pass: until a window ends, often; or none, a little, a window, or until a slot is
// doomed.
func (c *client) rest(a *actor) {
	b, s := &c.bands, &c.server
	s.advance()
	r := &s.records[c.rng.IntN(2)]
	d := time.Duration(0)
	switch kind := c.rng.IntN(4); {
	case s.open != nil && c.chance(c.atEnd):
		d = s.ends() - c.now - b.Guard/8 + c.upTo(b.Guard/2)
	case r.exists && c.chance(c.atDoom) && kind == 0: // until it is about to expire
		d = r.expires - c.upTo(b.duration(b.Doom)) - c.now + c.upTo(b.Guard)
	case r.exists && c.chance(c.atDoom):
		d = r.expires - b.duration(b.Doom) - c.now - b.Guard + c.upTo(4*b.Guard)
	case kind == 1 && c.restless == 0:
		d = c.upTo(b.Scale)
	case kind == 2:
		d = c.upTo(b.Guard)
	}
	a.sleep(max(0, d))
}
