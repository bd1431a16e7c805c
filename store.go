package throttr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/breaker"
	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/internal/deadline"
	"github.com/throttr-go/throttr/internal/fastpath"
	"github.com/throttr-go/throttr/internal/inside"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/opt"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// The defaults of WithTimeout and WithBreaker.
const (
	defaultTimeout  = 250 * time.Millisecond
	defaultFailures = 3
	defaultPause    = 320 * time.Millisecond
)

// minPause is the shortest one between probes.
const minPause = time.Millisecond

// WithTimeout bounds how long a decision waits for the backend, and then for the fallback. A call that
// takes longer has failed: the error matches [ErrUnavailable]. It also bounds Peek, and the settling of a
// reservation. Calls may end up to a sixteenth earlier, as those that begin at about the same time share a
// timer. Backends of package memory wait for nothing, and are not bound. Default, and with 0: 250 ms. It
// panics if d is negative.
func WithTimeout(d time.Duration) Option {
	opt.NotNegative("throttr: WithTimeout", d)
	return func(o *options) { o.timeout = d }
}

// WithBreaker sets when the circuit breaker of a backend opens, and how soon it notices that the store is
// back. After so many calls in a row that found the store away (errors that match [ErrUnavailable], errors
// of the network, and calls that took longer than [WithTimeout]), no call asks it any more: the fallback or
// the policy decides at once. A Peek of the key whose failure opened it then asks the store in the
// background, after pauses that grow up to the given one, of at least 1 ms. When it is answered, one call goes to the store
// again, and if that does not fail either, all do. The probing ends 10 s after the last call; the next call then
// asks the store.
//
// Every Throttr server has a breaker, and so has each node of a Redis cluster. Mistakes in the
// program, [ErrOverloaded], and [ErrFull] for some keys only open none. Defaults, and with 0: 3 failures, 320 ms. It panics if
// a number is negative.
func WithBreaker(failures int, pause time.Duration) Option {
	opt.NotNegative("throttr: WithBreaker", failures)
	opt.NotNegative("throttr: WithBreaker", pause)
	return func(o *options) { o.failures, o.pause = failures, pause }
}

// store is a store as a RateLimit sees it: the backend, with what protects callers while the store is away.
type store struct {
	backend  Backend
	fast     fastpath.Decider // or nil
	timeout  time.Duration
	bound    *deadline.Bound
	unkept   bool               // the backend keeps no context
	circuits []*breaker.Circuit // of the parts of the store; empty if it can't be away
	part     func(key string) int
}

// newStore returns the store of a backend. Its outages are reported to w, unless that is nil.
func newStore(b Backend, o *options, w *outage.Watch) *store {
	s := &store{backend: b, timeout: o.timeout, bound: deadline.New(o.timeout)}
	s.fast, _ = inside.Of[fastpath.Decider](b)
	parts := breaker.PartsOf(b)
	s.part = parts.Of
	opened, closed := func(error) {}, func() {}
	if w != nil {
		opened, closed = w.Opened, w.Closed
	}
	for range parts.N {
		s.circuits = append(s.circuits, breaker.NewCircuit(o.failures, max(o.pause/8, minPause), max(o.pause, minPause), opened, closed))
	}
	if parts.N > 0 { // other calls have no bound
		_, s.unkept = inside.Of[deadline.Unkept](b)
	}
	return s
}

func init() {
	inside.Add(func(b *ServerBackend) any { return breaker.Parts{N: len(b.servers), Of: b.pick} })
	inside.Add(func(*ServerBackend) any { return deadline.Unkept{} })
	inside.AddInner(func(b *OpenBackend) any { return b.BackendCloser })
	inside.AddInner(func(b *ownedBackend) any { return b.ServerBackend })
	inside.AddInner(func(b *lazyBackend) any { return b.ServerBackend })
}

// make makes a call, and sets res to the decision.
func (s *store) make(ctx context.Context, v verb, key string, l *Limit, n uint64, res *Result) error {
	if s.fast != nil && v != charge {
		op := fastpath.Take
		if v == hit {
			op = fastpath.Hit
		}
		count, left, retry, end, _, granted, ok := s.fast.Decide(ctx, key, l.Algorithm, l.Max, l.Scale, n, op, l.Burst, l.Name)
		if ok {
			res.set(limits.Capacity(*l), count, left, retry, end, granted)
			return nil
		}
	}
	var w window.Window
	err := s.do(ctx, v.String(), key, l, func(ctx context.Context) (err error) {
		w, err = v.call(ctx, s.backend, key, *l, n)
		return err
	})
	if err == nil {
		res.setWindow(l, &w, v.allowed(l, &w))
	}
	return err
}

// takeFast makes a take, and sets the window, if there is a decision at once. Hits have that in make.
func (s *store) takeFast(ctx context.Context, t *Take, w *window.Window) bool {
	if s.fast == nil {
		return false
	}
	l := &t.Limit
	count, left, retry, end, id, granted, ok := s.fast.Decide(ctx, t.Key, l.Algorithm, l.Max, l.Scale, t.N, fastpath.Take, l.Burst, l.Name)
	*w = window.Window{Count: count, ExpiresAt: end, Left: left, RetryAfter: retry, ID: id, Refused: !granted}
	return ok
}

// inProcess reports whether the store can't be away.
func (s *store) inProcess() bool { return len(s.circuits) == 0 }

// do makes a call of the backend, of the given name, for a key and a limit, if the store is there, and for no
// longer than allowed. It returns the error of the call, which says if it has taken too long, or why the
// store is away.
func (s *store) do(ctx context.Context, name, key string, l *Limit, call func(ctx context.Context) error) error {
	if s.inProcess() {
		return call(ctx)
	}
	ticket, err := s.circuit(key).Enter()
	if err != nil {
		if _, mistake := s.backend.Check(*l); mistake != nil {
			return callError(name, key, mistake)
		}
		return notAsked(name, key, err)
	}
	outcome := breaker.Nothing // unless the call returns: a backend may panic
	defer func() {
		if outcome != breaker.Away {
			ticket.Leave(outcome, nil, nil)
		} else {
			ticket.Leave(outcome, err, s.probe(key, *l))
		}
	}()
	outcome, err = s.call(ctx, call)
	return err
}

// takeAll makes takes, all or none, and sets their windows.
func (s *store) takeAll(ctx context.Context, takes []Take, windows []window.Window) (granted bool, err error) {
	if len(takes) == 1 && s.takeFast(ctx, &takes[0], &windows[0]) {
		return !windows[0].Refused, nil
	}
	err = s.doAll(ctx, takes, func(ctx context.Context) (err error) {
		if len(takes) == 1 {
			t := &takes[0]
			windows[0], err = s.backend.Take(ctx, t.Key, t.Limit, t.N)
			granted = !windows[0].Refused
			return err
		}
		granted, err = s.backend.TakeAll(ctx, takes, windows)
		return err
	})
	return granted && err == nil, err
}

// doAll is do for takes, which may be of several parts of the store.
func (s *store) doAll(ctx context.Context, takes []Take, call func(ctx context.Context) error) error {
	if len(s.circuits) < 2 {
		return s.do(ctx, take.String(), takes[0].Key, &takes[0].Limit, call)
	}
	var few [fewTakes]pass
	passes, err := s.enter(takes, few[:0])
	if err != nil {
		return notAsked(take.String(), takes[0].Key, err)
	}
	outcome := breaker.Nothing // as in do
	defer func() { s.leave(passes, outcome, err) }()
	outcome, err = s.call(ctx, call)
	return err
}

// call makes a call, and returns what it tells about the store.
func (s *store) call(ctx context.Context, call func(ctx context.Context) error) (breaker.Outcome, error) {
	limited := s.bound.Context(ctx)
	err := call(limited)
	switch {
	case err == nil && s.unkept:
		limited.Recycle()
		return breaker.Answered, nil
	case err == nil:
		limited.Release()
		return breaker.Answered, nil
	case limited.Exceeded(): // what it holds has ended with its period
		return breaker.Away, &outage.TimeoutError{After: s.timeout, Err: err}
	}
	limited.Release()
	switch {
	case ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrOverloaded) || isMistake(err):
		return breaker.Nothing, err
	case outage.IsAway(err):
		return breaker.Away, err
	}
	return breaker.Answered, err
}

// pass is what a circuit has let through, and the first take of that circuit.
type pass struct {
	circuit *breaker.Circuit
	ticket  breaker.Ticket
	take    *Take
}

// enter asks the circuits of the takes to let a call through, and appends what has to passes. It returns why a
// circuit is open.
func (s *store) enter(takes []Take, passes []pass) ([]pass, error) {
	for i := range takes {
		c := s.circuit(takes[i].Key)
		if slices.ContainsFunc(passes, func(p pass) bool { return p.circuit == c }) {
			continue
		}
		t, err := c.Enter()
		if err != nil {
			s.leave(passes, breaker.Nothing, nil)
			return nil, err
		}
		passes = append(passes, pass{c, t, &takes[i]})
	}
	return passes, nil
}

// leave tells the circuits what a call has shown. It is not known which part of the store has failed: if a circuit opens
// in vain, its probe and the next call close it.
func (s *store) leave(passes []pass, outcome breaker.Outcome, err error) {
	for _, p := range passes {
		if outcome != breaker.Away {
			p.ticket.Leave(outcome, nil, nil)
		} else {
			p.ticket.Leave(outcome, err, s.probe(p.take.Key, p.take.Limit))
		}
	}
}

func (s *store) circuit(key string) *breaker.Circuit {
	if len(s.circuits) == 1 {
		return s.circuits[0]
	}
	return s.circuits[s.part(key)]
}

// probe returns a function that asks the store for a window, and returns an error if the store is away.
func (s *store) probe(key string, l Limit) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		if _, err := s.backend.Peek(ctx, key, l, 0); outage.IsAway(err) {
			return err
		}
		return nil
	}
}

// withoutKey returns what an error says of the store, without the call and the key, which may be personal.
func withoutKey(err error) string {
	var late *outage.TimeoutError
	var request *RequestError
	if !errors.As(err, &late) && errors.As(err, &request) {
		return "server " + request.Server + failureText(request.Server, request.Err)
	}
	return outage.WithoutKey(err)
}

// notAsked returns the error of a call that was not made, because others had failed with the given cause.
func notAsked(call, key string, cause error) error {
	var request *RequestError
	if errors.As(cause, &request) {
		e := *request
		e.Call, e.Key, e.Sent = call, key, false
		if !errors.Is(&e, ErrUnavailable) { // a stalled server, for example
			e.Err = fmt.Errorf("%w: %w", ErrUnavailable, e.Err)
		}
		return &e
	}
	var other *callerr.Error
	if errors.As(cause, &other) {
		cause = other.Err
	}
	if !errors.Is(cause, ErrUnavailable) {
		cause = fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	return callError(call, key, cause)
}
