package conn

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/throttr-go/throttr/codec"
)

// readSize is the size of the buffer that is read into.
const readSize = 16 << 10

// read is the reader.
func (c *Conn[T]) read(early []byte) {
	defer close(c.readDone)
	defer c.stopWatching()
	c.in = make([]byte, readSize)
	c.hi = copy(c.in, early)
	err := c.deliver()
	for err == nil {
		if c.lend() {
			err = c.standBy()
		}
		if len(c.finished) > 1 {
			runtime.Gosched() // their callers may be back, and answered, before there is nothing to read
		}
		if err == nil {
			err = c.receive()
		}
	}
	c.Fail(err)
}

// receive waits for bytes and delivers what they hold.
func (c *Conn[T]) receive() error {
	n, err := c.nc.Read(c.room())
	return c.received(n, err)
}

// room returns where bytes can be read to, enough of them for any answer.
func (c *Conn[T]) room() []byte {
	if c.lo == c.hi {
		c.lo, c.hi = 0, 0
	} else if len(c.in)-c.hi < codec.MaxFrame {
		c.hi = copy(c.in, c.in[c.lo:c.hi])
		c.lo = 0
	}
	return c.in[c.hi:]
}

// received delivers what n bytes that were just read hold, unless it is none.
func (c *Conn[T]) received(n int, err error) error {
	c.hi += n
	if n == 0 && err != nil {
		if errors.Is(err, io.EOF) && c.hi > c.lo {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return c.deliver()
}

// deliver decodes the answers and EVENTs that have been read, and hands finished calls
// back.
func (c *Conn[T]) deliver() error {
	c.mu.Lock()
	err := c.decode()
	c.stall.progress++
	c.together = len(c.finished)
	mine := err == nil && c.queue.Len() > 0 && c.takePen()
	if c.retiring {
		c.wake.Signal()
	}
	c.mu.Unlock()
	if err != nil { // what came before may have been others' answers already
		c.events = c.events[:0]
		for _, cl := range c.finished {
			cl.err, cl.sent = err, true
		}
	}
	for _, e := range c.events {
		c.o.OnEvent(e)
	}
	c.finish(c.finished...)
	if mine {
		c.writeDirect()
	}
	return err
}

// decode takes answers and EVENTs off what has been read, and calls that have all of
// theirs out of flight. The mutex is held.
func (c *Conn[T]) decode() error {
	c.events, c.finished = c.events[:0], c.finished[:0]
	for c.lo < c.hi {
		src := c.in[c.lo:c.hi]
		var n int
		var err error
		if codec.Op(src[0]) == codec.OpEvent { // H8: an EVENT may come before any response
			n, err = c.decodeEvent(src)
		} else if c.flight.Len() == 0 {
			err = fmt.Errorf("byte 0x%02x came unasked", src[0])
		} else {
			n, err = c.decodeAnswer(c.flight.At(0), src)
		}
		switch {
		case errors.Is(err, codec.ErrShort):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		c.lo += n
		c.frames++
	}
	return nil
}

func (c *Conn[T]) decodeEvent(src []byte) (n int, err error) {
	e, n, err := codec.DecodeEvent[T](src)
	if err == nil {
		c.o.Counters.Events.Add(1)
		if c.o.OnEvent != nil {
			c.events = append(c.events, e)
		}
	}
	return n, err
}

// decodeAnswer decodes the next answer of cl, the oldest call in flight.
func (c *Conn[T]) decodeAnswer(cl *Call[T], src []byte) (n int, err error) {
	if c.o.OnEvent == nil && c.frames-cl.before >= MaxOutstanding {
		return 0, fmt.Errorf("%d answers and EVENTs came before one that was due: the server may have dropped it", MaxOutstanding)
	}
	var a Reply[T]
	kind := cl.kinds[len(cl.Replies)]
	if cl.fence {
		n, err = c.decodeFence(src)
	} else {
		a, n, err = decodeAnswer[T](kind, src)
	}
	if err != nil {
		return 0, err
	}
	if kind == codec.KindQuery && a.OK && cl.Bound.excludes(a.TTL.Unit, uint64(a.TTL.Amount)) {
		return 0, fmt.Errorf("a record has a TTL of %v, which is another's: answers were lost or came twice", a.TTL)
	}
	c.inFlight--
	if cl.Replies = append(cl.Replies, a); len(cl.Replies) == len(cl.kinds) {
		c.finished = append(c.finished, c.flight.Pop())
		c.inFlightBytes -= len(cl.frames)
	}
	return n, nil
}
