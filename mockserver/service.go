package mockserver

import (
	"os"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// service makes a server as slow as a real one, whose one thread serves all connections
// in turn. Nobody is served while a request lasts: the server's lock is held.
type service struct {
	each  time.Duration // that a request lasts; 0: there is no service
	back  *os.File      // a byte written here
	front *os.File      // comes out here
	turns chan struct{} // and is a turn for one connection
}

// begin starts the service, which ends before wg does.
func (v *service) begin(wg *sync.WaitGroup) (err error) {
	if v.each == 0 {
		return nil
	}
	v.turns = make(chan struct{})
	v.front, v.back, err = os.Pipe()
	if err == nil {
		wg.Go(v.run)
	}
	return err
}

// run hands out turns.
func (v *service) run() {
	defer close(v.turns)
	defer v.front.Close()
	turn := make([]byte, 1)
	for {
		if _, err := v.front.Read(turn); err != nil {
			return
		}
		v.turns <- struct{}{}
	}
}

// end ends the service: nobody waits for a turn any more.
func (v *service) end() {
	if v.each > 0 {
		v.back.Close()
	}
}

// queue has a connection that has been served wait for its next turn. Those that have
// something to read come first: to find the byte in the pipe, the scheduler must look at
// all descriptors, which it need not do for a connection that always has more to read.
func (v *service) queue() {
	if v.each == 0 {
		return
	}
	v.back.Write([]byte{0}) // fails once the service has ended
	<-v.turns
}

// readSize returns how much is taken from a connection at once.
func (v *service) readSize() int {
	if v.each == 0 {
		return readSize
	}
	return codec.MaxFrame
}

// spend lets the time pass that requests last which have begun at start, ns since 1970.
func (v *service) spend(c *clock, start uint64, requests int) {
	for end := start + uint64(requests)*uint64(v.each); v.each > 0 && c.now() < end; {
	}
}
