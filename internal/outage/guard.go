package outage

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/window"
)

// Options are those of a [Guard]. Watch and NotMade are needed.
type Options struct {
	Settings
	Watch *Watch // is told when a circuit opens or closes
	// NotMade returns the error of a call for a key that is not made, because others have failed with a cause.
	NotMade func(call, key string, cause error) error
	// FailedPart returns the part of the store that an error says is away, "" if it says none. It may be nil.
	FailedPart func(err error) string
}

// Guard is a backend around another one, whose store may be away.
//   - Decisions, Peek, GiveBack and Exchange wait for the store no longer than their timeout allows, and while a circuit
//     is open, they fail at once.
//   - Set, Reset and Delete take no longer than changeTime. They ask the store also while a circuit is open, and tell no
//     circuit how that went: they are rare, what they do is worth a try, and a store may need longer for it than for a
//     decision.
//   - Lists go to the backend, and wait as long as their ctx does.
//
// A call whose arguments are a mistake returns it at any time, as far as the backend's Check knows it, and says nothing
// about the store.
type Guard struct {
	window.Backend
	Options
	leased Held // of package lease; nothing if the backend is another one

	mu       sync.Mutex // guards circuits
	circuits map[circuitID]*Circuit
}

// circuitID tells circuits apart: those of the parts of the store, and for exchanges that have less time than other
// calls, as their lease is short, those of each power of two of it. A store that is too slow for a short lease is not
// away.
type circuitID struct {
	part string
	time int // the size of the timeout in bits
}

// New returns a Guard around a backend.
func New(b window.Backend, o Options) *Guard {
	o.Timeout = cmp.Or(o.Timeout, 250*time.Millisecond)
	o.Failures = cmp.Or(o.Failures, 3)
	o.Pause = cmp.Or(o.Pause, 320*time.Millisecond)
	return &Guard{Backend: b, Options: o, leased: leasedBy(b), circuits: map[circuitID]*Circuit{}}
}

// Holder is implemented by a backend that holds places in this process, such as that of package lease. A [Guard] has
// such a call decided by the places that are held, and only others pass its circuit: places are spent while the store
// is away.
type Holder interface {
	Held() Held
}

// Held is what a [Holder] holds.
type Held struct {
	// Of is the Holder itself. A type that embeds it may have a Take of its own, which must be called: such a type has
	// the method, too, but is not Of.
	Of window.Backend
	// Take makes a take, or a hit, of places that are held, or denies it by what is known, and asks no store. It
	// returns false, and does nothing, if the method of the backend must be called.
	Take func(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, ok bool)
}

// leasedBy returns what a backend holds. Most hold nothing.
func leasedBy(b window.Backend) Held {
	if holder, ok := b.(Holder); ok {
		if leased := holder.Held(); leased.Of == b {
			return leased
		}
	}
	return Held{Take: holdsNothing}
}

func holdsNothing(context.Context, string, window.Limit, uint64) (w window.Window, ok bool) {
	return w, false
}

// Part returns the part of the store that keeps a key.
func (g *Guard) Part(key string) string { return PartOf(g.Backend, key) }

// Err returns why the circuit of a part is open for exchanges with a lease, and nil while it is closed.
func (g *Guard) Err(part string, lease time.Duration) error {
	return g.circuit(part, g.timeout(lease)).Err()
}

// timeout returns how long an exchange with a lease may take.
func (g *Guard) timeout(lease time.Duration) time.Duration {
	if lease == 0 { // it only asks
		return g.Timeout
	}
	return min(g.Timeout, lease/4)
}

// circuit returns the circuit of a part for calls with a timeout.
func (g *Guard) circuit(part string, timeout time.Duration) *Circuit {
	id := circuitID{part, bits.Len64(uint64(timeout))}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.circuits[id]
	if c == nil {
		c = NewCircuit(g.Failures, g.Pause, g.Watch.Opened, g.Watch.Closed)
		g.circuits[id] = c
	}
	return c
}

// Hit implements [window.Backend].
func (g *Guard) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if w, ok := g.leased.Take(ctx, key, l, n); ok {
		return w, nil
	}
	return g.callOne(ctx, "hit", g.Backend.Hit, key, l, n)
}

// Take implements [window.Backend].
func (g *Guard) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if w, ok := g.leased.Take(ctx, key, l, n); ok {
		return w, nil
	}
	return g.callOne(ctx, "take", g.Backend.Take, key, l, n)
}

// Charge implements [window.Backend].
func (g *Guard) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return g.callOne(ctx, "charge", g.Backend.Charge, key, l, n)
}

// Peek implements [window.Backend].
func (g *Guard) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return g.callOne(ctx, "peek", g.Backend.Peek, key, l, n)
}

// method is a method of a backend that returns a window.
type method func(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error)

// callOne makes a call of one window.
func (g *Guard) callOne(ctx context.Context, name string, f method, key string, l window.Limit,
	n uint64) (w window.Window, err error) {
	err = g.call(ctx, name, g.Timeout, []subject{{key: key, limit: l}}, func(ctx context.Context) (err error) {
		w, err = f(ctx, key, l, n)
		return err
	})
	return w, err
}

// GiveBack implements [window.Backend].
func (g *Guard) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (ok bool, err error) {
	err = g.call(ctx, "give back", g.Timeout, []subject{{key: key, limit: l}}, func(ctx context.Context) (err error) {
		ok, err = g.Backend.GiveBack(ctx, key, l, n, id)
		if err == nil && !ok {
			return errTooLate
		}
		return err
	})
	if err == errTooLate {
		return false, nil
	}
	return ok, err
}

// TakeAll implements [window.Backend].
func (g *Guard) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	of := make([]subject, len(takes))
	for i := range takes {
		of[i] = subject{key: takes[i].Key, limit: takes[i].Limit}
	}
	err = g.call(ctx, "take", g.Timeout, of, func(ctx context.Context) (err error) {
		granted, err = g.Backend.TakeAll(ctx, takes, windows)
		return err
	})
	return granted, err
}

// Exchange implements [window.Backend].
func (g *Guard) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	timeout := g.Timeout
	of := make([]subject, len(claims))
	for i, c := range claims {
		of[i] = subject{key: c.Key, places: true}
		timeout = min(timeout, g.timeout(c.Lease))
	}
	partly := false
	err := g.call(ctx, "", timeout, of, func(limited context.Context) (err error) {
		stoodStill := watchHalf(timeout)
		err = g.Backend.Exchange(limited, claims, places)
		still := stoodStill()
		away := func(p window.Places) bool { return IsAway(p.Err) }
		switch {
		case still && (err != nil || slices.ContainsFunc(places, away)):
			return ErrStill
		case err != nil:
			return err
		}
		for i := range places {
			p := &places[i]
			if !IsAway(p.Err) {
				continue
			}
			partly = true
			err = p.Err
			if Ended(limited) && !Ended(ctx) {
				p.Err = &TimeoutError{After: timeout, Err: p.Err}
			}
		}
		return err
	})
	if partly { // the circuit was told, and each of the places has its Err
		return nil
	}
	return err
}

// changeTime bounds Set, Reset and Delete, unless the timeout of a call is longer.
const changeTime = 5 * time.Second

// change makes a call that is no decision.
func (g *Guard) change(ctx context.Context, f func(ctx context.Context) error) error {
	_, err := within(ctx, max(changeTime, g.Timeout), f)
	return err
}

// Set implements [window.Backend].
func (g *Guard) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = g.change(ctx, func(ctx context.Context) (err error) {
		w, err = g.Backend.Set(ctx, key, l, n)
		return err
	})
	return w, err
}

// Reset implements [window.Backend].
func (g *Guard) Reset(ctx context.Context, key string, l window.Limit) error {
	return g.change(ctx, func(ctx context.Context) error { return g.Backend.Reset(ctx, key, l) })
}

// Delete implements [window.Backend].
func (g *Guard) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	err = g.change(ctx, func(ctx context.Context) (err error) {
		n, err = g.Backend.Delete(ctx, key, scales...)
		return err
	})
	return n, err
}

// watchHalf is called when a call begins. It returns a function for the end of the call, if that has failed: it reports
// whether this process stood still when half of the call's time was over. Then an answer may have arrived that nobody
// has read. If the process ran at that time, there was no answer within half of the time, whatever happened later.
func watchHalf(timeout time.Duration) (stoodStill func() bool) {
	var ran atomic.Bool
	begin := time.Now()
	inTime := func() bool { return time.Since(begin) < timeout/4*3 }
	half := time.AfterFunc(timeout/2, func() { ran.Store(inTime()) })
	return func() bool {
		half.Stop()
		return !inTime() && !ran.Load()
	}
}

// subject is what a call is about.
type subject struct {
	key    string
	limit  window.Limit
	places bool // in flight, which have no limit
}

// call makes a call, if no circuit of its subjects is open, and for no longer than timeout. It returns its error, which
// says if it has taken too long, or why the store is away.
func (g *Guard) call(ctx context.Context, name string, timeout time.Duration, of []subject,
	f func(ctx context.Context) error) (err error) {
	var few [4]entry
	entries, refused, cause := g.enter(of, timeout, few[:0])
	if cause != nil {
		if mistake := g.mistake(name, of); mistake != nil {
			return mistake
		}
		if ended := ctx.Err(); ended != nil {
			return &api.CallError{Package: "throttr", Call: name, Key: of[0].key, Err: ended}
		}
		return g.NotMade(name, refused.key, cause)
	}
	evidence := Nothing // unless f returns: a backend may panic
	defer func() { g.leave(entries, of, timeout, evidence, err) }()
	evidence, err = within(ctx, timeout, f)
	if err != nil && evidence != Nothing {
		if mistake := g.mistake(name, of); mistake != nil {
			evidence = Nothing
			return mistake
		}
	}
	return err
}

// errTooLate says that nothing was given back. As a backend may know that without its store, it is no evidence.
var errTooLate = errors.New("throttr: too late to give back")

// within makes a call that takes no longer than timeout, and returns what it tells about the store. It relies on f to
// return when its ctx ends, as backends do. If ctx ends before the timeout, that tells nothing.
func within(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) (Evidence, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := f(limited)
	switch {
	case err == nil:
		return Answered, nil
	case Ended(ctx), err == ErrStill, err == errTooLate:
		return Nothing, err
	case Ended(limited):
		return Away, &TimeoutError{After: timeout, Err: err}
	case errors.Is(err, window.ErrClosed) || errors.Is(err, window.ErrOverloaded) || IsMistake(err):
		return Nothing, err
	case IsAway(err):
		return Away, err
	}
	return Answered, err // the store has answered, with an error: that is no outage, though a policy may decide
}

// mistake returns the error of a subject that the backend can't keep, or nil.
func (g *Guard) mistake(call string, of []subject) error {
	for i := range of {
		s := &of[i]
		if s.places {
			continue
		}
		if _, err := g.Check(s.limit); err != nil {
			return &api.CallError{Package: "throttr", Call: call, Key: s.key, Err: err}
		}
	}
	return nil
}

// entry is a call that a circuit has let through: of one of its subjects, which may share the circuit with others.
type entry struct {
	ticket  Ticket
	subject int // the index of the first of them
}

// enter asks the circuits of subjects to let a call with a timeout through, and returns entries with one for each
// circuit. If one is open, it returns a subject of it, and why.
func (g *Guard) enter(of []subject, timeout time.Duration, entries []entry) (_ []entry, refused *subject, cause error) {
	for i := range of {
		c := g.circuit(g.Part(of[i].key), timeout)
		if slices.ContainsFunc(entries, func(e entry) bool { return e.ticket.circuit == c }) {
			continue
		}
		t, err := c.Enter()
		if err != nil {
			g.leave(entries, of, timeout, Nothing, nil)
			return nil, &of[i], err
		}
		entries = append(entries, entry{t, i})
	}
	return entries, nil, nil
}

// leave tells the circuits what a call has shown. If it is not known which part of the store has failed, all of them
// are told of the failure: the probe and the next call close a circuit that has opened in vain.
func (g *Guard) leave(entries []entry, of []subject, timeout time.Duration, shown Evidence, cause error) {
	var failed string
	failing := func(e entry) bool { return g.Part(of[e.subject].key) == failed }
	if shown == Away && len(entries) > 1 {
		failed = g.partOf(cause)
	}
	known := failed != "" && slices.ContainsFunc(entries, failing)
	for _, e := range entries {
		switch {
		case shown != Away:
			e.ticket.Leave(shown, nil, nil)
		case known && !failing(e):
			e.ticket.Leave(Nothing, nil, nil)
		default:
			e.ticket.Leave(shown, cause, g.probe(of[e.subject], timeout))
		}
	}
}

// partOf returns the part that an error of a call is about: the one that it names, or that of the key that it
// names. It returns "" if it is not known.
func (g *Guard) partOf(err error) (part string) {
	if g.FailedPart != nil {
		part = g.FailedPart(err)
	}
	var call *api.CallError
	if part == "" && errors.As(err, &call) && call.Key != "" {
		part = g.Part(call.Key)
	}
	return part
}

// probe returns a function that asks the store for something that it need not have, and returns an error if the store
// is away or the backend is closed. Nobody could recover from a panic of the backend in the background: it is
// reported once, and the next call asks the store, in a goroutine of the program.
func (g *Guard) probe(s subject, timeout time.Duration) func() error {
	var told sync.Once
	return func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		defer func() {
			if cause := recover(); cause != nil {
				told.Do(func() { LogPanic(g.Log(), g.Backend, cause) })
			}
		}()
		if s.places {
			var places [1]window.Places
			err = g.Backend.Exchange(ctx, []window.Claim{{Key: s.key}}, places[:])
			err = cmp.Or(err, places[0].Err)
		} else {
			_, err = g.Backend.Peek(ctx, s.key, s.limit, 0)
		}
		if IsAway(err) || errors.Is(err, window.ErrClosed) {
			return err
		}
		return nil
	}
}
