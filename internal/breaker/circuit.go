package breaker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
)

// linger is how long a store is probed after the last call while the circuit is open.
const linger = 10 * time.Second

// Circuit is the circuit breaker of a store, or of a part of one: only calls tell whether it is there. So
// many failures in a row open the circuit. While calls are refused, a probe asks the store in the
// background, after growing pauses. When it has answered, one call is let through, the trial: if that does
// not fail, the circuit is closed. A store may answer what only reads, and fail what counts.
//
// Without calls, the probing ends after a while. The next call is then the trial. Between probes there is a
// timer, and no goroutine. A Circuit is safe for concurrent use.
type Circuit struct {
	cause    Breaker           // why calls are refused
	failures int32             // in a row, which open the circuit
	opened   func(cause error) // is called when the circuit has been opened
	closed   func()            // and closed

	row   atomic.Int32  // failures in a row
	epoch atomic.Uint64 // how often the circuit has been opened

	mu      sync.Mutex   // guards what follows, and changes of cause to nil and from it
	probe   func() error // of the call that has opened the circuit
	probing bool         // until the probing ends
	last    time.Time    // when the last call was refused, or was the trial
	trial   trial
}

type trial uint8

const (
	noTrial   trial = iota // the store has not answered yet
	trialNext              // the next call is the trial
	trialMade              // a call is the trial
)

// Outcome is what a call has told about the store.
type Outcome uint8

const (
	Nothing  Outcome = iota // the caller has given up, for example
	Answered                // the store is there
	Away                    // the store is not there
)

// Ticket is a call that a circuit has let through.
type Ticket struct {
	circuit *Circuit
	epoch   uint64
	trial   bool
}

// NewCircuit returns a circuit that opens after so many failures in a row, and is probed after pauses
// between the shortest and the longest. Opened and closed are called when it opens and closes.
func NewCircuit(failures int, shortest, longest time.Duration, opened func(cause error), closed func()) *Circuit {
	return &Circuit{cause: Breaker{min: shortest, max: longest}, failures: int32(min(failures, math.MaxInt32)), opened: opened, closed: closed}
}

// Err returns why the circuit is open, and nil while it is closed.
func (c *Circuit) Err() error { return c.cause.Err() }

// Enter lets a call through, or returns why it can't be made. The caller calls Leave at its end.
func (c *Circuit) Enter() (Ticket, error) {
	if c.Err() == nil {
		return Ticket{circuit: c, epoch: c.epoch.Load()}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err, t := c.Err(), Ticket{circuit: c, epoch: c.epoch.Load()}
	if err == nil {
		return t, nil
	}
	c.last = time.Now()
	if c.trial == trialNext || c.trial == noTrial && !c.probing {
		c.trial, t.trial = trialMade, true
		return t, nil
	}
	return Ticket{}, err
}

// Leave is called when a call has ended. If the store was away, it gives the cause and how to probe it.
func (t Ticket) Leave(o Outcome, cause error, probe func() error) {
	c := t.circuit
	switch {
	case t.trial:
		c.tried(o, cause)
	case o == Answered:
		if c.row.Load() != 0 {
			c.row.Store(0)
		}
	case o == Away && t.epoch == c.epoch.Load() && c.row.Add(1) >= c.failures:
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
	c.cause.Set(cause)
	c.epoch.Add(1)
	c.probe, c.trial, c.last = probe, noTrial, time.Now()
	c.startProbing()
	c.mu.Unlock()
	c.opened(cause)
}

// tried ends a trial.
func (c *Circuit) tried(o Outcome, cause error) {
	c.mu.Lock()
	switch o {
	case Answered:
		c.row.Store(0)
		c.cause.Set(nil)
		c.mu.Unlock()
		c.closed()
		return
	case Nothing:
		c.trial = trialNext
	case Away:
		c.trial = noTrial
		c.cause.Set(cause)
		c.startProbing()
	}
	c.mu.Unlock()
}

// startProbing starts the probing, unless it goes on. The caller holds mu.
func (c *Circuit) startProbing() {
	if c.probing {
		return
	}
	c.probing = true
	pauses := backoff.New(c.cause.min, c.cause.max)
	time.AfterFunc(pauses.Next(), func() { c.step(pauses) })
}

// step probes the store, unless it has answered or a trial is under way, and has itself called again after a pause. Calls
// that are refused get what the last probe has found.
func (c *Circuit) step(pauses *backoff.Backoff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Err() == nil || time.Since(c.last) > linger {
		c.probing = false
		return
	}
	if probe := c.probe; c.trial == noTrial {
		c.mu.Unlock()
		err := probe()
		c.mu.Lock()
		switch {
		case c.trial != noTrial: // a trial began meanwhile
		case err != nil:
			c.cause.Set(err)
		default:
			c.trial = trialNext
		}
	}
	time.AfterFunc(pauses.Next(), func() { c.step(pauses) })
}
