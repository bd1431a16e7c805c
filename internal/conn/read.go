package conn

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/throttr-go/throttr/codec"
)

const (
	// MaxOutstanding is the number of responses that a server keeps for a connection. It
	// silently drops what is beyond (H4). EVENTs count as responses.
	MaxOutstanding = 1024
	// readSize is the size of the read buffer.
	readSize = 16 << 10
)

// readLoop is the reader goroutine. Early is how many bytes the buffer begins with.
func (c *Conn) readLoop(early int) {
	defer close(c.readDone)
	err := c.process(early)
	for err == nil {
		if c.lone() {
			c.releaseRead()
			c.readTurn.await()
		}
		if len(c.decoder.done) > 1 {
			// The callers can queue their next calls, and the server can respond, before
			// this goroutine sleeps. With 64 and with 512 callers it makes
			// callers that share writes a fifth faster.
			runtime.Gosched()
		}
		err = c.receive(c.nc.Read)
	}
	c.Cut(err)
}

// receive reads once and processes what comes. The calling goroutine owns the read side.
func (c *Conn) receive(read func([]byte) (int, error)) error {
	n, err := read(c.decoder.space())
	switch {
	case n > 0:
		return c.process(n)
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) && c.decoder.partial():
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// process processes n bytes that have been read.
func (c *Conn) process(n int) error {
	c.mu.Lock()
	c.decoder.expected.append(&c.launched)
	c.mu.Unlock()
	err := c.decoder.decode(n)
	if err != nil {
		c.Cut(err) // before callers send their calls again
	}
	arrived := c.decoder.arrived
	c.options.Counters.Answered.Add(uint64(arrived.responses))
	c.options.Counters.Events.Add(uint64(arrived.frames - arrived.responses))
	writes := c.accountForArrivals()
	for _, e := range c.decoder.events {
		c.options.OnEvent(e)
	}
	c.addLoad(-arrived.requests, -len(c.decoder.done)) // before a caller can call Load
	for _, cl := range c.decoder.done {
		c.returnCall(cl)
	}
	clear(c.decoder.done)
	if writes {
		c.writeNonblocking()
	}
	return err
}

// responseDecoder decodes what the server sends and matches the responses with the calls in
// flight, oldest first. It does no I/O and needs no mutex: only the goroutine that owns the
// read side uses it, see readTurn.
type responseDecoder struct {
	size       Size
	keepEvents bool // if false, EVENTs are dropped

	buf      []byte
	lo, hi   int      // buf[lo:hi] has been read and not been decoded
	expected callList // calls in flight
	frames   uint64   // responses and EVENTs that have been decoded

	// What the last decode has found.
	arrived arrivals
	done    []*Call // calls that have all of their responses; afterwards only their number counts
	events  []Event // alias buf
}

// arrivals counts what a read has brought.
type arrivals struct {
	frames    int // responses and EVENTs
	responses int
	requests  int // requests of the calls that are done
	bytes     int // size of their frames
}

// space returns the free end of the buffer. It is large enough for any frame to be
// completed.
func (d *responseDecoder) space() []byte {
	if d.lo == d.hi {
		d.lo, d.hi = 0, 0
	} else if len(d.buf)-d.hi < codec.MaxFrame {
		d.hi = copy(d.buf, d.buf[d.lo:d.hi])
		d.lo = 0
	}
	return d.buf[d.hi:]
}

// partial reports whether a frame has begun that is not complete.
func (d *responseDecoder) partial() bool { return d.lo < d.hi }

// decode decodes all frames that are complete, after n bytes have been read into the space.
func (d *responseDecoder) decode(n int) error {
	d.events = d.events[:0]
	d.done = d.done[:0]
	d.arrived = arrivals{}
	d.hi += n
	for d.partial() {
		n, err := d.decodeFrame(d.buf[d.lo:d.hi])
		switch {
		case err == nil:
			d.lo += n
			d.frames++
			d.arrived.frames++
		case errors.Is(err, codec.ErrShort):
			return nil
		default:
			return d.reject(err)
		}
	}
	return nil
}

// reject drops the EVENTs, and fails the calls, that the same read has brought before a frame that can't be there. If
// responses were lost, these may have been matched with the wrong calls already. It returns the error that says why.
func (d *responseDecoder) reject(reason error) error {
	err := fmt.Errorf("%w: %w", ErrProtocol, reason)
	d.events = d.events[:0]
	for _, cl := range d.done {
		cl.err, cl.sent = err, true
	}
	return err
}

// decodeFrame decodes the frame at the start of src and returns its size.
func (d *responseDecoder) decodeFrame(src []byte) (int, error) {
	due := d.expected.n > 0
	if due && !d.keepEvents && d.frames-d.expected.first.before >= MaxOutstanding { // H4
		return 0, fmt.Errorf("%d responses and EVENTs came before one that was due: the server may have dropped it",
			MaxOutstanding)
	}
	switch {
	case codec.Op(src[0]) == codec.OpEvent: // H8: an EVENT may precede any response
		e, n, err := d.size.DecodeEvent(src)
		if err == nil && d.keepEvents {
			d.events = append(d.events, e)
		}
		return n, err
	case due:
		return d.decodeResponse(d.expected.first, src)
	default:
		return 0, fmt.Errorf("byte 0x%02x came unasked", src[0])
	}
}

// decodeResponse decodes the next response to cl, the oldest call in flight.
func (d *responseDecoder) decodeResponse(cl *Call, src []byte) (n int, err error) {
	kind := cl.kinds[len(cl.Responses)]
	response, n, err := d.size.Decode(kind, src)
	if err != nil {
		return 0, err
	}
	if kind == codec.KindQuery && response.OK && cl.MostTTL > 0 && response.TTL.Amount > cl.MostTTL {
		return 0, fmt.Errorf("a record has a TTL of %d units, which is over %d: responses were lost or came twice",
			response.TTL.Amount, cl.MostTTL)
	}
	d.arrived.responses++
	if cl.Responses = append(cl.Responses, response); len(cl.Responses) == cl.Len() {
		d.done = append(d.done, d.expected.pop())
		d.arrived.requests += cl.Len()
		d.arrived.bytes += len(cl.frames)
	}
	return n, nil
}
