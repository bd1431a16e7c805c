// Package servicetime makes a mock server as slow as a real one, which executes
// all requests in one thread and takes some 3 µs for each. The benchmarks of this
// module need that: on a server that costs nothing, sending fewer and larger writes
// gains nothing either.
package servicetime

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Max is the longest service time.
const Max = time.Millisecond

// Thread is the thread of a server. Its methods do nothing on a nil Thread.
//
// It serves one connection at a time: the connection reads at most [Thread.ReadSize]
// bytes, executes their requests, spends their time, sends the responses, and waits
// for its next turn.
type Thread struct {
	each  time.Duration // the time of a request
	back  *os.File      // a byte that is written here
	front *os.File      // is read here
	turns chan struct{} // and becomes a turn for one connection
}

// New returns a Thread that takes a time over 0, and up to [Max], for each request.
func New(each time.Duration) (*Thread, error) {
	if each <= 0 || each > Max {
		return nil, fmt.Errorf("service time is 0 to %v, not %v", Max, each)
	}
	return &Thread{each: each}, nil
}

// Start begins to give out turns. It adds its goroutine, which [Thread.Close] ends, to wg.
func (t *Thread) Start(wg *sync.WaitGroup) (err error) {
	if t == nil {
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
	if t != nil {
		t.back.Close()
	}
}

// Wait blocks until it is the connection's turn to be served again. Connections that
// have something to read come first: to find the byte in the pipe, Go's scheduler has
// to poll all descriptors, which it does not do while a goroutine can run. Without the
// pipe, a connection that always has more to read would keep the others out.
func (t *Thread) Wait() {
	if t == nil {
		return
	}
	t.back.Write([]byte{0}) // fails once the thread is closed
	<-t.turns
}

// ReadSize returns how many bytes are read from a connection at once: as many as a
// real server reads, or otherwise if t is nil.
func (t *Thread) ReadSize(otherwise int) int {
	if t == nil {
		return otherwise
	}
	return codec.MaxFrame
}

// Begin returns the time, for [Thread.Spend].
func (t *Thread) Begin() (start time.Time) {
	if t != nil {
		start = time.Now()
	}
	return start
}

// Spend returns when requests that began at start have taken their time. It spins: so
// short a time can't be slept. The caller holds the server's lock, so that all other
// connections wait.
func (t *Thread) Spend(start time.Time, requests int) {
	if t == nil {
		return
	}
	for end := start.Add(time.Duration(requests) * t.each); time.Now().Before(end); {
	}
}
