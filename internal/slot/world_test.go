package slot

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// epoch is time 0 of the model.
var epoch = time.Unix(1e9, 0)

// world is one run of the model: a server, clients, and the events to come.
type world struct {
	rng    *rand.Rand
	now    time.Duration
	events []event // in order

	settings
	bands   Bands
	server  server
	clients []*client

	tracing   bool
	trace     []string
	violation string
	actors    []*actor

	faults  int
	died    int
	longest time.Duration // the longest time that a hit could open no window, without a fault

	returned int // calls whose hits were given back to the window with an ID
}

// event is something that happens at a time.
type event struct {
	at    time.Duration
	do    func()
	actor *actor
	wait  int // of the actor: others have been interrupted
}

// schedule adds an event, behind those of the same time.
func (w *world) schedule(e event) {
	i := len(w.events)
	for i > 0 && w.events[i-1].at > e.at {
		i--
	}
	w.events = slices.Insert(w.events, i, e)
}

// run runs until nothing is left to happen, or a rule is violated.
func (w *world) run() {
	for len(w.events) > 0 && w.violation == "" {
		e := w.events[0]
		w.events = w.events[1:]
		w.now = e.at
		switch {
		case e.actor == nil:
			e.do()
		case e.wait == e.actor.waits:
			e.actor.resume()
		}
	}
	for _, a := range w.actors {
		a.stop()
	}
}

func (w *world) log(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%12.6fs  ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.log("VIOLATION: %s", w.violation)
	}
}

// time returns the present time as clients read it.
func (w *world) time() time.Time { return epoch.Add(w.now) }

// chance returns true with a probability.
func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// upTo returns a duration in [0, d).
func (w *world) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(w.rng.Int64N(int64(d)))
}

// actor is a goroutine of a client.
type actor struct {
	*world
	client *client
	name   string
	waits  int // times that it has waited
	resume func()
	stop   func()
	yield  func(struct{}) bool
}

// start runs a function as an actor, from now on.
func (w *world) start(c *client, name string, f func(*actor)) *actor {
	a := &actor{world: w, client: c, name: name}
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		defer func() {
			if r := recover(); r != nil && r != errStopped {
				panic(r)
			}
		}()
		f(a)
	})
	a.resume = func() { next() }
	a.stop = stop
	w.actors = append(w.actors, a)
	w.schedule(event{at: w.now, actor: a})
	return a
}

var errStopped = fmt.Errorf("stopped")

// sleepUntil lets other things happen until a time.
func (a *actor) sleepUntil(at time.Duration) {
	a.wake(at)
	a.pause()
}

// wake resumes the actor at a time, instead of when it would be resumed.
func (a *actor) wake(at time.Duration) {
	a.waits++
	a.schedule(event{at: max(at, a.now), actor: a, wait: a.waits})
}

// pause lets other things happen until the actor is resumed.
func (a *actor) pause() {
	if !a.yield(struct{}{}) || a.client.dead {
		panic(errStopped)
	}
}

func (a *actor) sleep(d time.Duration) { a.sleepUntil(a.now + d) }

// conn is a connection. Its calls are executed only while it is open.
type conn struct {
	epoch int
	ended bool
}

func (w *world) dial() *conn { return &conn{epoch: w.server.epoch} }

func (w *world) alive(c *conn) bool { return !c.ended && c.epoch == w.server.epoch }

// sentCall is the outcome of a call.
type sentCall struct {
	Effects
	responses []response
	ok        bool // all responses have arrived
	torn      bool // other requests were executed in between
}

const never = time.Duration(math.MaxInt64)

// send sends a call and waits for its responses until by. A action is executed before by or never,
// because its connection is ended; other calls can be executed later.
func (a *actor) send(c *conn, action Action, ops []Request, by time.Duration, bounded bool) sentCall {
	w := a.world
	b := sentCall{responses: make([]response, 0, len(ops))}
	b.First = action.Slot
	b.Sent = w.time()
	if !w.alive(c) || by <= w.now {
		return b
	}
	var most time.Duration // until when the call may be executed
	switch {
	case bounded:
		most = by - w.now
	case by == never:
		most = w.bands.Guard
	default:
		most = min(2*(by-w.now), 4*w.bands.Scale, 8*w.bands.Guard)
	}
	at := w.now + w.delay(most)
	if w.slow != Look && action.Kind == w.slow {
		at = w.now + w.upTo(most)
	}
	if action.Kind == Join && w.server.open != nil && w.chance(w.lateRate) {
		at = w.server.ends() + w.upTo(w.bands.Guard*3/2)
		switch w.rng.IntN(4) {
		case 0:
			at += w.upTo(4 * w.bands.Guard)
		case 1:
			at += w.bands.Scale
		}
		at = max(at, w.now)
	}
	second, cut, lost := at, len(ops), false
	if w.chance(w.faultRate) {
		w.faults++
		switch w.rng.IntN(4) {
		case 0: // lost on the way
			cut, lost = 0, true
		case 1: // cut: the rest never arrives
			cut, lost = w.rng.IntN(len(ops)), true
		case 2: // executed, but the responses are lost
			lost = true
		case 3: // torn: the rest arrives later
			cut = w.rng.IntN(len(ops) + 1)
			b.torn = cut > 0 && cut < len(ops)
			second = at + w.upTo(most-(at-w.now))
			if w.resetRate > 0 {
				second = min(second, at+w.bands.Guard-1)
			}
		}
	}
	execute := func(ops []Request) {
		if !w.alive(c) || bounded && w.now >= by {
			return
		}
		for _, op := range ops {
			r := w.server.execute(a.name, action, op)
			b.responses = append(b.responses, r)
			b.Note(op, r.ok, r.record)
			if w.violation != "" {
				return
			}
		}
	}
	w.schedule(event{at: at, do: func() { execute(ops[:cut]) }})
	if cut < len(ops) && !lost {
		w.schedule(event{at: second, do: func() { execute(ops[cut:]) }})
	}
	back := second + w.delay(most/2)
	if lost {
		back = min(by, w.now+2*w.bands.Guard)
	}
	if w.died < w.deaths && w.chance(w.deathRate) {
		w.died++
		w.log("%s dies", a.name)
		a.client.dead = true
		panic(errStopped)
	}
	a.sleepUntil(min(back, by))
	b.Received = w.time()
	b.ok = !lost && w.now < by && len(b.responses) == len(ops) && w.alive(c)
	if !b.ok {
		c.ended = c.ended || bounded || lost
	}
	return b
}

// delay returns how long something takes that may take up to most: often it is quick, sometimes
// it takes as long as it may.
func (w *world) delay(most time.Duration) time.Duration {
	if w.quick {
		return min(w.upTo(w.bands.Guard/10), max(most-1, 0))
	}
	switch p := w.rng.IntN(10); {
	case p < 6 || most <= 1:
		return min(w.upTo(w.bands.Guard/20), max(most-1, 0))
	case p < 9:
		return w.upTo(most)
	default:
		return most - 1 - w.upTo(most/50)
	}
}

func (w *world) String() string { return strings.Join(w.trace, "\n") }
