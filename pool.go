package throttr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/throttr-go/throttr/codec"
)

// pool is the connections to one server. Puddle owns them: it limits their number,
// makes and destroys them. The pool holds each for as long as it is of use, so that
// any number of callers can share it, and lets go of it once it is lost, too old or
// idle. It needs no connection that it does not have: the first caller has one
// made, and so does one who finds all of them busy.
type pool[T codec.Value] struct {
	server string
	addr   address
	cfg    *Config
	calls  *sync.Pool // of *call[T]
	counts counters

	puddle *puddle.Pool[*conn[T]]
	ctx    context.Context // ends with the pool
	cancel context.CancelFunc
	tasks  sync.WaitGroup // openings and the upkeep

	conns atomic.Pointer[[]*conn[T]] // those of live, to be read without the mutex

	mu      sync.Mutex
	closed  bool
	live    []*puddle.Resource[*conn[T]] // at most MaxConns
	opening *opening                     // at most one at a time
	// spareFailed is when a connection beside others could not be made. The next is not tried
	// before MaxRetryPause is over.
	spareFailed time.Time
	circuit     circuit
	waiting     int // callers who wait for it

	places   chan struct{} // one taken by each session, and by each that is being opened
	sessions map[*session[T]]struct{}
}

// opening is an attempt to make a connection, for all who wait for one.
type opening struct {
	done  chan struct{}
	spare bool  // there was a connection when it began
	err   error // once done
}

func newPool[T codec.Value](server string, cfg *Config, calls *sync.Pool) (*pool[T], error) {
	addr, err := parseAddress(server)
	if err != nil {
		return nil, err
	}
	p := &pool[T]{
		server: server, addr: addr, cfg: cfg, calls: calls,
		places: make(chan struct{}, cfg.MaxConns), sessions: make(map[*session[T]]struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.puddle, err = puddle.NewPool(&puddle.Config[*conn[T]]{
		Constructor: p.open,
		Destructor:  func(c *conn[T]) { c.close(ErrClosed) },
		// A connection that takes no more calls but still has some in flight keeps its
		// place in puddle.
		MaxSize: 2 * int32(cfg.MaxConns),
	})
	if err != nil {
		return nil, err
	}
	p.tasks.Go(p.upkeep)
	return p, nil
}

// get returns the connection with the least load. It has one made, and waits for
// it, if there is none; it has one made, and does not wait, if all are busy.
func (p *pool[T]) get(ctx context.Context) (*conn[T], error) {
	for {
		if c := p.idlest(); c != nil && !p.wanting(c) {
			return c, nil
		}
		c, o, err := p.choose()
		if o == nil {
			return c, err
		}
		select {
		case <-o.done:
			err = o.err
		case <-ctx.Done():
			err = ctx.Err()
		}
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// idlest returns the connection with the least load, nil if there is none.
func (p *pool[T]) idlest() (best *conn[T]) {
	conns := p.conns.Load()
	if conns == nil {
		return nil
	}
	var least loadNumber
	for _, c := range *conns {
		if load := c.load.get(); best == nil || load < least {
			best, least = c, load
		}
	}
	return best
}

// crowd is how many calls on each of n connections make another worth having, times n.
// While a server executes what came on one, the client sends the next on another; but many
// connections share out what could leave in one write.
const crowd = 48

// wanting reports whether the idlest connection has enough to do for another to be worth
// making, where that is possible.
func (p *pool[T]) wanting(idlest *conn[T]) bool {
	n, load := len(*p.conns.Load()), idlest.load.get()
	return n < p.cfg.MaxConns && (load.calls() >= n*crowd || load.requests() >= (p.cfg.MaxInFlight+1)/2)
}

// use replaces the connections in use. The mutex is held.
func (p *pool[T]) use(live []*puddle.Resource[*conn[T]]) {
	p.live = live
	conns := make([]*conn[T], len(live))
	for i, r := range live {
		conns[i] = r.Value()
	}
	p.conns.Store(&conns)
}

// choose returns a connection, or the opening to wait for.
func (p *pool[T]) choose() (*conn[T], *opening, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	best := p.idlest()
	if err := p.circuit.refusal(); err != nil && best == nil {
		return nil, nil, err
	}
	spare := best != nil
	need := !spare || p.wanting(best) && time.Since(p.spareFailed) >= p.cfg.MaxRetryPause
	if need && p.opening == nil && p.circuit.cause == nil {
		o := &opening{done: make(chan struct{}), spare: spare}
		p.opening = o
		p.tasks.Go(func() { p.fill(o) })
	}
	if best != nil {
		return best, nil, nil
	}
	if p.waiting >= p.cfg.MaxWaiting {
		return nil, nil, ErrOverloaded
	}
	p.waiting++
	return nil, p.opening, nil
}

// fill makes a connection. It is not bound to the caller who needed it first.
func (p *pool[T]) fill(o *opening) {
	r, err := p.puddle.Acquire(p.ctx)
	spare := o.spare && err != nil
	if spare { // that says nothing of the others; nor, if they are gone, of one made now
		p.counts.failures.Add(1)
		err = nil
	} else {
		err = p.take(r, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening = nil
	if spare {
		p.spareFailed = time.Now()
	}
	if err != nil && !p.closed {
		p.tasks.Go(p.recover) // alone: nothing else makes connections until it has ended
	}
	o.err = err
	close(o.done)
}

// take makes a connection that was just made one of those in use, or returns why it can't
// be. That closes or opens the circuit.
func (p *pool[T]) take(r *puddle.Resource[*conn[T]], err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		if r != nil {
			r.Destroy()
		}
		return ErrClosed
	case err != nil:
		p.counts.failures.Add(1)
	case r.Value().failure() != nil: // it has ended already, and dropped did not find it
		r.Destroy()
		err = fmt.Errorf("%w to %s: %w", ErrConnect, p.server, r.Value().failure())
	default:
		p.use(append(p.live, r))
	}
	p.circuit.cause = err
	return err
}

// dropped is called by a connection that has ended.
func (p *pool[T]) dropped(c *conn[T]) {
	if !errors.Is(c.err, errConnGone) && !errors.Is(c.err, ErrClosed) {
		p.counts.failures.Add(1)
	}
	p.discard(c)
}

// discard takes c out of use and, if it has not been discarded before, has puddle
// destroy it when it has ended.
func (p *pool[T]) discard(c *conn[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.live, func(r *puddle.Resource[*conn[T]]) bool { return r.Value() == c })
	if i < 0 {
		return
	}
	r := p.live[i]
	p.use(slices.Delete(p.live, i, i+1))
	p.tasks.Go(func() {
		select {
		case <-c.done:
		case <-p.ctx.Done():
		}
		r.Destroy()
	})
}

// close ends all connections, and returns when nothing of them is left. Requests in
// flight fail.
func (p *pool[T]) close() {
	p.mu.Lock()
	p.closed = true
	live := p.live
	p.use(nil)
	p.mu.Unlock()
	p.cancel()
	p.endSessions()
	for _, r := range live {
		r.Destroy()
	}
	p.tasks.Wait()
	p.puddle.Close()
}
