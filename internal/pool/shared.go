package pool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/window"
)

// shared are the connections that callers share.
//
// Invariants:
//   - At most one attempt to make one is under way, be it an attempt for callers, that of Start,
//     or one of reconnect.
//   - live has at most MaxConns connections, and one more while it replaces one that is too old.
//     Puddle may hold more: those that were retired and still have requests in flight.
//   - While Pool.Err is not nil, only Start and reconnect attempt to make connections.
//   - A connection in live has not ended, or is about to be discarded: by its OnEnd, or by who
//     notices first.
//   - Once closed is true, live stays empty.
type shared[T codec.Value] struct {
	pool   *Pool[T]
	puddle *puddle.Pool[*conn.Conn[T]]

	// conns are the connections of live. They are replaced with mu held and read without it.
	conns atomic.Pointer[[]*conn.Conn[T]]

	// mu guards the fields below.
	mu       sync.Mutex
	closed   bool
	live     []*puddle.Resource[*conn.Conn[T]] // the connections that calls can be sent on
	attempt  *attempt                          // under way for callers; nil if there is none
	noGrowth time.Time                         // until then, no connection is made beside others
}

// attempt is an attempt to make a connection. All callers that need one share it.
type attempt struct {
	growth bool          // there was a connection when it began
	done   chan struct{} // closed when err is set
	err    error
}

// init is called once, before all else.
func (s *shared[T]) init(p *Pool[T]) (err error) {
	s.pool = p
	s.setLive(nil)
	s.puddle, err = puddle.NewPool(&puddle.Config[*conn.Conn[T]]{
		Constructor: s.construct,
		Destructor:  func(c *conn.Conn[T]) { c.Close(window.ErrClosed) },
		MaxSize:     2 * int32(p.o.MaxConns), // retired connections count until they have ended
	})
	return err
}

// close ends the connections, and has no further one made.
func (s *shared[T]) close() {
	s.mu.Lock()
	s.closed = true
	live := s.live
	s.setLive(nil)
	s.mu.Unlock()
	for _, r := range live {
		r.Destroy()
	}
}

// construct makes a shared connection. It is puddle's constructor, whose context puddle detaches from
// that of Acquire.
func (s *shared[T]) construct(ctx context.Context) (*conn.Conn[T], error) {
	if err := s.pool.beginOpening(); err != nil {
		return nil, err
	}
	defer s.pool.background.Done()
	nc, early, err := s.pool.open(ctx, false)
	if err != nil {
		return nil, err
	}
	return s.pool.newConn(nc, early, conn.Options[T]{OnEnd: s.ended}), nil
}

// acquire returns the connection with the least load. If there is none, acquire waits for one
// to be made. If all of them are busy, acquire has another one made and does not wait for it.
func (s *shared[T]) acquire(ctx context.Context) (*conn.Conn[T], error) {
	for {
		if c, grow := s.pick(); c != nil && !grow {
			return c, nil
		}
		c, a, err := s.connOrAttempt()
		if a == nil {
			return c, err
		}
		select {
		case <-a.done:
			if err = a.err; err == nil {
				err = ctx.Err() // both may have happened
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.pool.waiters.leave()
		if err != nil {
			return nil, err
		}
	}
}

// connOrAttempt returns a connection, or the attempt that the caller must wait for, which is then one of the pool's
// waiters. It starts an attempt if one is needed.
func (s *shared[T]) connOrAttempt() (*conn.Conn[T], *attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, window.ErrClosed
	}
	c, grow := s.pick()
	if c != nil {
		if grow {
			s.startGrowth()
		}
		return c, nil, nil
	}
	if err := s.pool.away(); err != nil {
		return nil, nil, err
	}
	s.startAttempt(false)
	if !s.pool.waiters.enter() {
		return nil, nil, window.ErrOverloaded
	}
	return nil, s.attempt, nil
}

// grow has another connection made, and does not wait for it.
func (s *shared[T]) grow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.startGrowth()
	}
}

// startGrowth starts an attempt to make another connection beside those that exist, unless
// such an attempt has failed recently. The caller holds mu.
func (s *shared[T]) startGrowth() {
	if !time.Now().Before(s.noGrowth) {
		s.startAttempt(true)
	}
}

// startAttempt starts an attempt, unless one is under way. Growth says that there is a
// connection. The caller holds mu.
func (s *shared[T]) startAttempt(growth bool) {
	if s.attempt != nil {
		return
	}
	a := &attempt{growth: growth, done: make(chan struct{})}
	s.attempt = a
	s.pool.background.Go(func() { s.run(a) })
}

// run makes an attempt. It does not depend on the context of the caller that needed it.
//
// A growth attempt that fails says nothing about the connections that exist, and so does not
// set Pool.Err. If they are gone meanwhile, the callers that wait try again.
func (s *shared[T]) run(a *attempt) {
	err := s.connect()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = nil
	switch {
	case err == nil || s.closed:
	case a.growth:
		s.noGrowth = time.Now().Add(s.pool.o.MaxBackoff)
		err = nil
	default:
		s.pool.setAway(err)
		s.pool.background.Go(s.pool.reconnect)
	}
	a.err = err
	close(a.done)
}

// connect has puddle make a connection, and adds it to live. It uses Acquire, which Close
// ends by way of s.pool.ctx: puddle's Close hangs if it is called while a constructor that
// TryAcquire has started runs.
func (s *shared[T]) connect() error { return s.admit(s.puddle.Acquire(s.pool.ctx)) }

// admit adds a connection that was just made to live, or returns why that is not possible.
func (s *shared[T]) admit(r *puddle.Resource[*conn.Conn[T]], err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		if r != nil {
			r.Destroy()
		}
		return window.ErrClosed
	}
	if err != nil {
		s.pool.noteFailure()
		return err
	}
	if err := r.Value().Err(); err != nil { // it may have ended before it was in live
		r.Destroy()
		return &dial.ConnectError{Server: s.pool.o.Server, Err: err}
	}
	s.setLive(append(s.live, r))
	s.pool.mayHaveRestarted.Store(false)
	return nil
}

// setLive replaces the connections that calls can be sent on. The caller holds mu.
func (s *shared[T]) setLive(live []*puddle.Resource[*conn.Conn[T]]) {
	s.live = live
	conns := make([]*conn.Conn[T], len(live))
	for i, r := range live {
		conns[i] = r.Value()
	}
	s.conns.Store(&conns)
}

// ended is the OnEnd of shared connections. If callers need another one, acquire makes it.
func (s *shared[T]) ended(c *conn.Conn[T], err error) {
	s.discard(c)
	s.pool.noteEnd(err)
}

// noteEnd is called when a connection has ended.
func (p *Pool[T]) noteEnd(err error) {
	if isLoss(err) {
		p.noteFailure()
		if p.Parked() {
			p.keeper.soon() // the connection may have ended between an INSERT and its UPDATE
		}
	}
}

// isLoss reports whether a connection ended because of a failure.
func isLoss(err error) bool {
	return err != nil && !errors.Is(err, conn.ErrGone) && !errors.Is(err, window.ErrClosed)
}

// discard removes c from live, and destroys it as soon as it has ended. It does nothing if c was discarded before. If
// the last connection was lost, mayHaveRestarted is set before another attempt can begin: callers that have failed
// may be faster than OnEnd.
func (s *shared[T]) discard(c *conn.Conn[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.live, func(r *puddle.Resource[*conn.Conn[T]]) bool { return r.Value() == c })
	if i < 0 {
		return
	}
	r := s.live[i]
	s.setLive(slices.Delete(s.live, i, i+1))
	if len(s.live) == 0 && isLoss(c.Err()) {
		s.pool.mayHaveRestarted.Store(true)
	}
	s.pool.background.Go(func() {
		select {
		case <-c.Done():
		case <-s.pool.ctx.Done():
		}
		r.Destroy()
	})
}

// growthThreshold is the number of calls per connection that make another connection useful.
// While a server executes the requests of one connection, the client writes those of the
// next. But the more connections there are, the fewer requests leave in one write.
const growthThreshold = 48

// pick returns the connection with the least load, nil if there is none, and whether another
// connection would be useful.
func (s *shared[T]) pick() (c *conn.Conn[T], grow bool) {
	conns := *s.conns.Load()
	c, load := leastLoaded(conns)
	return c, c != nil && s.shouldGrow(len(conns), load)
}

// leastLoaded returns the connection with the least load, nil if there is none, and the load.
func leastLoaded[T codec.Value](conns []*conn.Conn[T]) (best *conn.Conn[T], least conn.Load) {
	for _, c := range conns {
		if load := c.Load(); best == nil || load < least {
			best, least = c, load
		}
	}
	return best, least
}

// shouldGrow reports whether another connection beside the n existing ones would be useful:
// there may be another one, and even the least loaded has many calls to do or is about to
// reach its limit of requests in flight.
func (s *shared[T]) shouldGrow(n int, least conn.Load) bool {
	return n < s.pool.o.MaxConns &&
		(least.Calls() >= n*growthThreshold || least.Requests() >= (s.pool.o.MaxInFlight+1)/2)
}

// waiters are callers that wait for a connection, or for a stream to end.
type waiters struct {
	n   atomic.Int64
	max int64
}

// enter counts a caller that is about to wait. It returns false if as many wait already as are
// allowed to.
func (w *waiters) enter() bool {
	if w.n.Add(1) > w.max {
		w.n.Add(-1)
		return false
	}
	return true
}

func (w *waiters) leave() { w.n.Add(-1) }
