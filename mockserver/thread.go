package mockserver

import (
	"os"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// thread is the only thread of a real server, which spends the time of requests. Its methods do nothing on a
// nil thread.
//
// It serves one connection at a time: the connection reads at most a buffer, executes its requests,
// spends their time, sends the responses, and waits for its next turn. In memory it sleeps, which costs no time
// in a bubble of testing/synctest. Over a socket it spins, as a real server does: so short a time can't be slept.
type thread struct {
	free  chan struct{} // holds a token while no connection is served
	began time.Time     // when the connection that has the token got it
	owed  time.Duration // by its requests

	// Of a thread that spins.
	back  *os.File      // a byte that is written here
	front *os.File      // is read here
	turns chan struct{} // and becomes a turn for one connection; nil: the thread sleeps
}

// newThread returns a thread whose goroutine, if it has one, ends with close, and is added to wg.
func newThread(spins bool, wg *sync.WaitGroup) (t *thread, err error) {
	t = &thread{free: make(chan struct{}, 1)}
	t.free <- struct{}{}
	if !spins {
		return t, nil
	}
	t.turns = make(chan struct{})
	if t.front, t.back, err = os.Pipe(); err != nil {
		return nil, err
	}
	wg.Go(t.giveTurns)
	return t, nil
}

func (t *thread) giveTurns() {
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

// close ends the giving of turns. wait returns at once from then on.
func (t *thread) close() {
	if t != nil && t.turns != nil {
		t.back.Close()
	}
}

// wait blocks until a connection may read again. Connections that
// have something to read come first: to find the byte in the pipe, Go's scheduler has
// to poll all descriptors, which it does not do while a goroutine can run. Without the
// pipe, a connection that always has more to read would keep the others out.
func (t *thread) wait() {
	if t != nil && t.turns != nil {
		t.back.Write([]byte{0}) // fails once the thread is closed
		<-t.turns
	}
}

// readSize returns how many bytes are read from a connection at once: as many as a
// real server reads, or more if requests take no time.
func (t *thread) readSize() int {
	if t == nil {
		return readSize
	}
	return codec.MaxFrame
}

// acquire waits until no other connection is served. Connections are served in the order
// of their calls.
func (t *thread) acquire() {
	if t != nil {
		<-t.free
		t.began = time.Now()
	}
}

// owe adds the time of a request. The connection has called acquire.
func (t *thread) owe(d time.Duration) {
	if t != nil {
		t.owed += d
	}
}

// release spends what the connection owes, and lets the next connection be served.
func (t *thread) release() {
	if t == nil {
		return
	}
	if t.turns == nil {
		time.Sleep(t.owed)
	} else {
		for time.Since(t.began) < t.owed {
		}
	}
	t.owed = 0
	t.free <- struct{}{}
}
