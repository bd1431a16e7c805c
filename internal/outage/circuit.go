package outage

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/throttr-go/throttr/window"
)

const (
	// linger is how long after the last call a store is probed as often as while calls come.
	linger = 10 * time.Second
	// rarest is the longest pause between probes of a store that nobody calls.
	rarest = 30 * time.Second
	// shortest is the shortest pause between probes.
	shortest = time.Millisecond
)

// Circuit is the circuit breaker of a part of a store: only calls tell whether that is there. So many failures in a
// row open the circuit. While calls are refused, a probe asks the store in the background, after growing pauses. When
// it has answered, one call is let through, the trial: if that does not fail, the circuit is closed. A store may
// answer what only reads, and fail what counts.
//
// If nobody calls for a while, the pauses grow further, and the next call is a trial. If the store answers a probe, and
// nobody calls to try it, the circuit is closed without a trial.
//
// Between probes there is a timer, which does not keep the Circuit alive, and no goroutine. A Circuit is safe for
// concurrent use.
type Circuit struct {
	failures int32             // in a row, which open the circuit
	longest  time.Duration     // pause between probes while calls come
	onOpen   func(cause error) // is called when the circuit has been opened
	onClose  func()            // and closed

	cause atomic.Pointer[error] // why calls are refused; nil while the circuit is closed
	row   atomic.Int32          // failures in a row
	epoch atomic.Uint64         // how often the circuit has been opened

	mu    sync.Mutex    // guards what follows, and changes of cause to nil and from it
	probe func() error  // of the call that has opened the circuit
	pause time.Duration // before the next probe
	plan  uint64        // the number of the planned step: a step with another one does nothing
	last  time.Time     // when the last call was refused, or was the trial
	phase phase         // while the circuit is open
}

type phase uint8

const (
	probing  phase = iota // the store has not answered yet
	answered              // it has answered a probe: the next call is the trial
	trying                // a call is the trial
)

// Evidence is what a call has told about the store.
type Evidence uint8

const (
	Nothing  Evidence = iota // the caller has given up, for example
	Answered                 // the store is there
	Away                     // the store is not there
)

// Ticket is a call that a circuit has let through.
type Ticket struct {
	circuit *Circuit
	epoch   uint64 // of the circuit then: if it has been opened since, a failure tells nothing new
	isTrial bool
	earned  bool // of a trial: the store had answered a probe
}

// NewCircuit returns a circuit that opens after so many failures in a row, and is probed after pauses up to the
// longest one, of at least 1 ms. OnOpen and onClose are called when it has been opened and closed.
func NewCircuit(failures int, longest time.Duration, onOpen func(cause error), onClose func()) *Circuit {
	return &Circuit{failures: int32(min(failures, math.MaxInt32)),
		longest: min(max(longest, shortest), math.MaxInt64/4), onOpen: onOpen, onClose: onClose}
}

// Err returns why the circuit is open, and nil while it is closed.
func (c *Circuit) Err() error {
	if cause := c.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Enter lets a call through, or returns why it can't be made. The caller calls Leave at its end.
func (c *Circuit) Enter() (Ticket, error) {
	t := Ticket{circuit: c, epoch: c.epoch.Load()}
	if c.Err() == nil {
		return t, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.epoch = c.epoch.Load()
	err := c.Err()
	if err == nil { // closed meanwhile
		return t, nil
	}
	idle := c.idle()
	c.last = time.Now()
	if c.phase == answered || c.phase == probing && idle {
		t.isTrial = true
		t.earned = c.phase == answered
		c.phase = trying
		return t, nil
	}
	return Ticket{}, err
}

// idle reports whether nobody has called for a while. The caller holds mu.
func (c *Circuit) idle() bool { return time.Since(c.last) > linger }

// Leave is called when a call has ended. If the store was away, it gives the cause and how to probe it.
func (t Ticket) Leave(e Evidence, cause error, probe func() error) {
	c := t.circuit
	switch {
	case t.isTrial:
		t.tried(e, cause)
	case e == Answered:
		if c.row.Load() != 0 {
			c.row.Store(0)
		}
	case e == Away && t.epoch == c.epoch.Load() && c.row.Add(1) >= c.failures:
		c.open(cause, probe)
	}
}

// open opens the circuit, unless it is open.
func (c *Circuit) open(cause error, probe func() error) {
	c.mu.Lock()
	if c.Err() != nil {
		c.mu.Unlock()
		return
	}
	c.cause.Store(&cause)
	c.epoch.Add(1)
	c.probe = probe
	c.last = time.Now()
	c.probeSoon()
	c.mu.Unlock()
	c.onOpen(cause)
}

// tried ends a trial, and closes the circuit if the store has answered. A trial that tells nothing leaves the circuit
// as it was before.
func (t Ticket) tried(e Evidence, cause error) {
	c := t.circuit
	c.mu.Lock()
	switch {
	case e == Answered:
		c.closeLocked()
	case e == Nothing && t.earned:
		c.phase = answered
	default:
		if e == Away {
			c.cause.Store(&cause)
		}
		c.phase = probing
		c.probeSoon()
	}
	c.mu.Unlock()
	if e == Answered {
		c.onClose()
	}
}

// closeLocked closes the circuit. The caller holds mu, and calls onClose when it has unlocked it.
func (c *Circuit) closeLocked() {
	c.row.Store(0)
	c.cause.Store(nil)
	c.phase = probing
	c.plan++ // no further step
}

// probeSoon begins with the shortest pause between probes. The caller holds mu.
func (c *Circuit) probeSoon() {
	c.pause = max(c.longest/8, shortest)
	c.planStep()
}

// planStep has the next step made after a pause, if c is still used then. The caller holds mu.
func (c *Circuit) planStep() {
	most := c.longest
	if c.idle() {
		most = max(most, rarest)
	}
	pause := min(c.pause, most)
	c.pause = 2 * pause
	c.plan++
	plan, used := c.plan, weak.Make(c)
	time.AfterFunc(jitter(pause), func() {
		if c := used.Value(); c != nil {
			c.step(plan)
		}
	})
}

// step probes a store that has not answered yet. It closes the circuit of one that has if nobody calls, and otherwise
// plans the next step.
func (c *Circuit) step(plan uint64) {
	c.mu.Lock()
	if probe := c.probe; plan == c.plan && c.phase == probing {
		c.mu.Unlock()
		err := probe()
		c.mu.Lock()
		if plan == c.plan && c.phase == probing { // no trial has begun meanwhile
			c.probed(err)
		}
	}
	closes := plan == c.plan && c.phase == answered && c.idle()
	switch {
	case closes:
		c.closeLocked()
	case plan == c.plan:
		c.planStep()
	}
	c.mu.Unlock()
	if closes {
		c.onClose()
	}
}

// probed notes what a probe has found. Calls that are refused get it. The caller holds mu.
func (c *Circuit) probed(err error) {
	switch {
	case err == nil:
		c.phase = answered
	case errors.Is(err, window.ErrClosed): // only calls can find out more
		c.phase = answered
		c.plan++
	default:
		c.cause.Store(&err)
	}
}
