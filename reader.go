package throttr

import (
	"errors"
	"fmt"
	"io"

	"github.com/throttr-go/throttr/codec"
)

// readSize is the size of the buffer that is read into.
const readSize = 16 << 10

// read is the reader.
func (c *conn[T]) read(early []byte) {
	defer close(c.readDone)
	buf := make([]byte, readSize)
	lo, hi := 0, copy(buf, early)
	var finished []*call[T]
	for {
		if hi > lo {
			n, err := c.deliver(buf[lo:hi], &finished)
			lo += n
			if err != nil {
				c.fail(err)
				return
			}
		}
		if lo == hi {
			lo, hi = 0, 0
		} else if len(buf)-hi < codec.MaxFrame {
			hi = copy(buf, buf[lo:hi])
			lo = 0
		}
		n, err := c.nc.Read(buf[hi:])
		hi += n
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && hi > lo {
				err = io.ErrUnexpectedEOF
			}
			c.fail(fmt.Errorf("%w: %w", ErrConnLost, err))
			return
		}
	}
}

// deliver decodes the answers and EVENTs that src holds, hands finished calls
// back, and returns how many bytes it took.
func (c *conn[T]) deliver(src []byte, finished *[]*call[T]) (n int, err error) {
	done := (*finished)[:0]
	c.mu.Lock()
	for n < len(src) && err == nil {
		var size int
		if codec.Op(src[n]) == codec.OpEvent { // H8: an EVENT may come before any response
			var e codec.Event[T]
			if e, size, err = codec.DecodeEvent[T](src[n:]); err == nil {
				c.counts.events.Add(1)
				if c.onEvent != nil {
					c.events = append(c.events, e)
				}
			}
		} else if c.flight.len() == 0 {
			err = fmt.Errorf("byte 0x%02x came unasked", src[n])
		} else {
			var a answer[T]
			cl := c.flight.at(0)
			if a, size, err = decodeAnswer[T](cl.kinds[len(cl.answers)], src[n:]); err == nil {
				c.inFlight--
				if cl.answers = append(cl.answers, a); len(cl.answers) == len(cl.kinds) {
					done = append(done, c.flight.pop())
					c.inFlightBytes -= len(cl.frames)
				}
			}
		}
		n += size
	}
	c.stall.progress++
	mine := c.queue.len() > 0 && c.takePen()
	if c.retiring {
		c.wake.Signal()
	}
	c.mu.Unlock()
	for _, e := range c.events {
		c.onEvent(e)
	}
	c.events = c.events[:0]
	c.finish(done...)
	*finished = done
	if mine {
		c.writeDirect()
	}
	if err != nil && !errors.Is(err, codec.ErrShort) {
		return n, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return n, nil
}
