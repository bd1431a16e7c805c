// Package servicetime makes a mock server as slow as a real one, which executes
// all requests in one thread, takes 6 µs for each, and up to 140 µs more for each
// that makes a record. The benchmarks of this module need that: on a server that
// costs nothing, sending fewer and larger writes gains nothing either.
package servicetime

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Mode is how a [Thread] spends time.
type Mode uint8

// The modes.
const (
	// Spin keeps a processor busy, as a real server does. So short a time can't be slept.
	Spin Mode = iota
	// Sleep sleeps, which costs no time in a bubble of testing/synctest.
	Sleep
	// Add only adds the time to [Thread.Busy]. It is for a clock that does not move by itself.
	Add
)

// Thread is the thread of a server. Its methods do nothing on a nil Thread.
//
// It serves one connection at a time: the connection reads at most [Thread.ReadSize]
// bytes, executes their requests, spends their time, sends the responses, and waits
// for its next turn.
type Thread struct {
	mode Mode
	busy atomic.Int64  // nanoseconds
	owed time.Duration // by the requests that are being executed; used by one connection at a time

	free  chan struct{} // Sleep: holds a token while no connection is served
	back  *os.File      // Spin: a byte that is written here
	front *os.File      // is read here
	turns chan struct{} // and becomes a turn for one connection
}

// New returns a Thread.
func New(mode Mode) *Thread {
	t := &Thread{mode: mode}
	if mode == Sleep {
		t.free = make(chan struct{}, 1)
		t.free <- struct{}{}
	}
	return t
}

func (t *Thread) is(mode Mode) bool { return t != nil && t.mode == mode }

// Start begins to give out turns. It adds its goroutine, which [Thread.Close] ends, to wg.
func (t *Thread) Start(wg *sync.WaitGroup) (err error) {
	if !t.is(Spin) {
		return nil
	}
	t.turns = make(chan struct{})
	t.front, t.back, err = os.Pipe()
	if err == nil {
		wg.Go(t.run)
	}
	return err
}

func (t *Thread) run() {
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

// Close ends the giving out of turns. [Thread.Wait] returns at once from then on.
func (t *Thread) Close() {
	if t.is(Spin) {
		t.back.Close()
	}
}

// Wait blocks until it is the connection's turn to be served again. Connections that
// have something to read come first: to find the byte in the pipe, Go's scheduler has
// to poll all descriptors, which it does not do while a goroutine can run. Without the
// pipe, a connection that always has more to read would keep the others out.
func (t *Thread) Wait() {
	if !t.is(Spin) {
		return
	}
	t.back.Write([]byte{0}) // fails once the thread is closed
	<-t.turns
}

// ReadSize returns how many bytes are read from a connection at once: as many as a
// real server reads, or otherwise if t spends no time.
func (t *Thread) ReadSize(otherwise int) int {
	if t == nil || t.mode == Add {
		return otherwise
	}
	return codec.MaxFrame
}

// Sleeps reports whether the thread sleeps, so that a connection has to call
// [Thread.Acquire] and [Thread.Release].
func (t *Thread) Sleeps() bool { return t.is(Sleep) }

// Acquire waits until no other connection is served. Connections are served in the order
// of their calls.
func (t *Thread) Acquire() { <-t.free }

// Release spends what the connection owes, and lets the next connection be served.
func (t *Thread) Release() {
	time.Sleep(t.owed)
	t.owed = 0
	t.free <- struct{}{}
}

// Begin returns the time, for [Thread.Spend].
func (t *Thread) Begin() (start time.Time) {
	if t.is(Spin) {
		start = time.Now()
	}
	return start
}

// Owe adds a request that takes a time of d.
func (t *Thread) Owe(d time.Duration) {
	if t == nil {
		return
	}
	t.busy.Add(int64(d))
	if t.mode != Add {
		t.owed += d
	}
}

// Spend returns when requests that began at start have taken the time that they owe, if
// the thread spins. The caller holds the server's lock, so that all other connections wait.
func (t *Thread) Spend(start time.Time) {
	if !t.is(Spin) {
		return
	}
	for end := start.Add(t.owed); time.Now().Before(end); {
	}
	t.owed = 0
}

// Busy returns how much time all requests have taken.
func (t *Thread) Busy() time.Duration {
	if t == nil {
		return 0
	}
	return time.Duration(t.busy.Load())
}
