package fixedwindow

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

var (
	// errLate is the reason to end a connection whose server does not respond in time.
	errLate = fmt.Errorf("%w: no response to an action in time", conn.ErrLost)
	// errAgain says that an action was not executed, because it was too late, or because the
	// connection takes no more calls. The lookup has to be repeated.
	errAgain = errors.New("look up again")
)

// link makes and keeps the connection to one server on which lookups and actions go out. An action goes out on
// the connection of its lookup. So if a server has been restarted, no action reaches it that rests
// on the records it has lost.
//
// The calls of many keys share the connection, so that they share writes and reads, too.
//
// send sends a call on the connection of the link, and sendBy sends an action, in time or never.
type link struct {
	server Server
	calls  *conn.Calls

	current  atomic.Pointer[conn.Conn]
	answered *atomic.Uint64 // counts calls that have their responses
	closed   atomic.Bool    // set before current is closed for good
	// lock has an element while current is being replaced. It is a channel because its holder
	// waits for the network: in a testing/synctest bubble, time does not pass while a goroutine
	// waits for a mutex.
	lock chan struct{}

	paces [linkClasses]*pace // of the cleaners that share the link
}

func newLink(s Server, calls *conn.Calls, answered *atomic.Uint64) *link {
	l := &link{server: s, calls: calls, answered: answered, lock: make(chan struct{}, 1)}
	for i := range l.paces {
		l.paces[i] = newPace()
	}
	return l
}

// linkClasses is the number of links for actions of hits and operations.
const linkClasses = 11

// links are the links to one server, of which the last one is the janitor's. An action that is late ends the
// connection of its link, and so all that is under way on it. Actions share a link only if their guards differ by
// a factor of two at most: so an action of a short scale ends nothing of a long one. What is taken is given back
// on the connection on which it was counted, and so takes go out on these links, too.
type links [linkClasses + 1]*link

// classOf returns the class of a guard: the index of its link in links.
func classOf(guard time.Duration) int {
	return min(bits.Len64(uint64(slot.MaxGuard/guard)), linkClasses) - 1
}

// connect returns the connection. It makes another one if the last one takes no more calls.
func (l *link) connect(ctx context.Context) (*conn.Conn, error) {
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
	if l.closed.Load() {
		return nil, window.ErrClosed
	}
	c, err := l.server.Dedicated(ctx)
	if err != nil {
		return nil, err
	}
	if l.current.Store(c); l.closed.Load() { // close may not have seen c
		c.Close(window.ErrClosed)
		return nil, window.ErrClosed
	}
	return c, nil
}

// close ends the connection, and one that is being made.
func (l *link) close() {
	l.closed.Store(true)
	if c := l.current.Load(); c != nil {
		c.Close(window.ErrClosed)
	}
}

// send sends a call on a connection that the link has made, and waits for its responses. After an error the call must
// not be used any more.
func (l *link) send(ctx context.Context, c *conn.Conn, cl *conn.Call) (sent bool, err error) {
	l.server.AddParking(cl)
	if err := c.Enqueue(cl); err != nil {
		l.calls.Put(cl)
		return false, err
	}
	done, sent, err := cl.Wait(ctx)
	switch {
	case err == nil:
		l.server.RemoveParking(cl)
		l.answered.Add(1)
		return true, nil
	case done:
		l.calls.Put(cl)
	}
	return sent, err
}

// sendBy is send for actions. They are not sent after the deadline. If the responses are not there in
// time, the connection is ended, so that the actions have been executed by then, or never are: the error is errLate.
// errAgain says that they were not executed.
func (l *link) sendBy(ctx context.Context, c *conn.Conn, cl *conn.Call, deadline,
	by time.Time) (sent bool, err error) {
	cl.Stale = func() bool { return !time.Now().Before(deadline) }
	timer := time.AfterFunc(time.Until(by), func() { c.Cut(errLate) })
	sent, err = l.send(ctx, c, cl)
	if err == nil || !sent || ctx.Err() == nil {
		timer.Stop() // otherwise the call may be in flight, and c has to end in time (rule 3)
	}
	if err == nil && !time.Now().Before(by) {
		return true, errLate
	}
	if err != nil && !sent && ctx.Err() == nil && (errors.Is(err, conn.ErrStale) || !c.Open()) {
		err = errAgain
	}
	return sent, err
}
