package mockserver

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// thread is the only thread of a real server, which spends the time of requests. Its methods do nothing on a
// nil thread.
//
// It serves one connection at a time: the connection reads at most readSize bytes, executes their requests,
// spends their time, sends the responses, and waits for its next turn. In memory it sleeps, which costs no time
// in a bubble of testing/synctest. Over a socket it spins, as a real server does: so short a time can't be slept.
type thread struct {
	busy atomic.Int64  // nanoseconds
	owed time.Duration // by the requests that are being executed; used by one connection at a time

	free chan struct{} // of a thread that sleeps: holds a token while no connection is served

	back  *os.File      // of a thread that spins: a byte that is written here
	front *os.File      // is read here
	turns chan struct{} // and becomes a turn for one connection
}

// newThread returns a thread whose goroutine, if it has one, ends with close, and is added to wg.
func newThread(sleeps bool, wg *sync.WaitGroup) (t *thread, err error) {
	t = &thread{}
	if sleeps {
		t.free = make(chan struct{}, 1)
		t.free <- struct{}{}
		return t, nil
	}
	t.turns = make(chan struct{})
	if t.front, t.back, err = os.Pipe(); err != nil {
		return nil, err
	}
	wg.Go(t.run)
	return t, nil
}

func (t *thread) run() {
	defer close(t.turns)
	defer t.front.Close()
	turn := make([]byte, 1)
	for {
		if _, err := t.front.Read(turn); err != nil {
			return
		}
		t.turns <- struct{}{}
	}
}

// sleeps reports whether a connection has to call acquire and release.
func (t *thread) sleeps() bool { return t != nil && t.free != nil }

// spins reports whether a connection has to call wait.
func (t *thread) spins() bool { return t != nil && t.turns != nil }

// close ends the giving out of turns. wait returns at once from then on.
func (t *thread) close() {
	if t.spins() {
		t.back.Close()
	}
}

// wait blocks until it is the connection's turn to be served again. Connections that
// have something to read come first: to find the byte in the pipe, Go's scheduler has
// to poll all descriptors, which it does not do while a goroutine can run. Without the
// pipe, a connection that always has more to read would keep the others out.
func (t *thread) wait() {
	if t.spins() {
		t.back.Write([]byte{0}) // fails once the thread is closed
		<-t.turns
	}
}

// readSize returns how many bytes are read from a connection at once: as many as a
// real server reads, or otherwise if requests take no time.
func (t *thread) readSize(otherwise int) int {
	if t == nil {
		return otherwise
	}
	return codec.MaxFrame
}

// acquire waits until no other connection is served. Connections are served in the order
// of their calls.
func (t *thread) acquire() { <-t.free }

// release spends what the connection owes, and lets the next connection be served.
func (t *thread) release() {
	time.Sleep(t.owed)
	t.owed = 0
	t.free <- struct{}{}
}

// owe adds a request that takes a time of d.
func (t *thread) owe(d time.Duration) {
	if t != nil {
		t.busy.Add(int64(d))
		t.owed += d
	}
}

// spend returns when requests that began at start have taken the time that they owe, if
// the thread spins. The caller holds the server's lock, so that all other connections wait.
func (t *thread) spend(start time.Time) {
	if !t.spins() {
		return
	}
	for time.Since(start) < t.owed {
	}
	t.owed = 0
}
