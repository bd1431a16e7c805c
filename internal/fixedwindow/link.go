package fixedwindow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

var (
	// errLate is the reason to end a connection whose server does not respond in time.
	errLate = fmt.Errorf("%w: no response to an action in time", conn.ErrLost)
	// errAgain says that an action was not executed, because it was too late, or because the
	// connection takes no more calls. The lookup has to be repeated.
	errAgain = errors.New("look up again")
)

// link is the connection to one server on which lookups and actions go out. An action goes out on
// the connection of its lookup. So if a server has been restarted, no action reaches it that rests
// on the records it has lost.
//
// The calls of all keys share the connection, so that they share writes and reads, too.
type link[T codec.Value] struct {
	server Server[T]
	calls  *conn.CallPool[T]

	current  atomic.Pointer[conn.Conn[T]]
	answered atomic.Uint64 // calls that have their replies
	// lock has an element while current is being replaced. It is a channel because its holder
	// waits for the network: in a testing/synctest bubble, time does not pass while a goroutine
	// waits for a mutex.
	lock chan struct{}

	// decided is closed when the sweeper has decided whether to park the server; nil if there is
	// none. Nothing waits for it after decideBy.
	decided  <-chan struct{}
	decideBy time.Time
}

// maxDecide bounds how long the first windows wait until the server is parked, or is not to be.
const maxDecide = time.Second

func newLink[T codec.Value](s Server[T], calls *conn.CallPool[T]) *link[T] {
	return &link[T]{server: s, calls: calls, lock: make(chan struct{}, 1)}
}

// connect returns the connection. It makes another one if the last one takes no more calls.
func (l *link[T]) connect(ctx context.Context) (*conn.Conn[T], error) {
	if c := l.current.Load(); c != nil && c.Open() {
		return c, nil
	}
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.lock }()
	if c := l.current.Load(); c != nil && c.Open() {
		return c, nil
	}
	c, err := l.server.Dedicated(ctx)
	if err != nil {
		return nil, err
	}
	l.current.Store(c)
	return c, nil
}

// awaitDecision waits until it is decided whether the server is parked. It is called before a record
// is created, and reports whether it has waited.
func (l *link[T]) awaitDecision(ctx context.Context) (waited bool, err error) {
	select {
	case <-l.decided:
		return false, nil
	default:
	}
	wait := time.Until(l.decideBy)
	if wait <= 0 {
		return false, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.decided:
	case <-timer.C:
	case <-ctx.Done():
		return true, ctx.Err()
	}
	return true, nil
}

// close ends the connection.
func (l *link[T]) close() {
	if c := l.current.Load(); c != nil {
		c.Close(window.ErrClosed)
	}
}

// do sends a call and waits for its replies. After an error the call must not be used any more.
func (l *link[T]) do(ctx context.Context, c *conn.Conn[T], cl *conn.Call[T]) (sent bool, err error) {
	l.server.AddParking(cl)
	if err := c.Enqueue(cl, true); err != nil {
		l.calls.Put(cl)
		return false, err
	}
	done, sent, err := cl.Wait(ctx)
	switch {
	case err == nil:
		l.server.TakeParking(cl)
		l.answered.Add(1)
		return true, nil
	case done:
		l.calls.Put(cl)
	}
	return sent, err
}

// doBy is do for actions. They are not sent after the deadline. If the replies are not there in
// time, the connection is ended, so that the actions have been executed by then, or never are.
// errAgain says that they were not executed.
func (l *link[T]) doBy(ctx context.Context, c *conn.Conn[T], cl *conn.Call[T], deadline, by time.Time) (sent bool, err error) {
	cl.Stale = func() bool { return !time.Now().Before(deadline) }
	timer := time.AfterFunc(time.Until(by), func() { c.Fail(errLate) })
	sent, err = l.do(ctx, c, cl)
	if err == nil || ctx.Err() == nil {
		timer.Stop() // otherwise the call may still be in flight
	}
	if err != nil && !sent && ctx.Err() == nil && !errors.Is(err, conn.ErrQueueFull) {
		err = errAgain
	}
	return sent, err
}
