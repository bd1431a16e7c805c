package conn

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/throttr-go/throttr/codec"
)

const (
	// MaxOutstanding is the number of responses that a server keeps for a connection. It
	// silently drops what is beyond (H4). EVENTs count as responses.
	MaxOutstanding = 1024
	// readSize is the size of the read buffer.
	readSize = 16 << 10
	// stallQuarters is how many quarters of StallTimeout pass in silence before the connection has stalled.
	stallQuarters = 4
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
	c.processing = true
	c.mu.Unlock()
	before := c.decoder.frames
	err := c.decoder.decode(n)
	if err != nil {
		c.Cut(err) // before callers send their calls again
	}
	responses := uint64(c.decoder.responses)
	c.options.Counters.Answered.Add(responses)
	c.options.Counters.Events.Add(c.decoder.frames - before - responses)
	writes := c.accountForArrivals()
	for _, e := range c.decoder.events {
		c.options.OnEvent(e)
	}
	for _, cl := range c.decoder.done {
		c.returnCall(cl)
	}
	clear(c.decoder.done)
	if writes {
		c.writeNonblocking()
	}
	return err
}

// returnCall returns a call to its caller, or recycles one that has been abandoned.
func (c *Conn) returnCall(cl *Call) {
	if !cl.finish() {
		c.options.Calls.Put(cl)
	}
}

// watch has the watchdog run while responses are due, so that a request costs no timer. The caller holds mu.
func (c *Conn) watch() {
	if c.watching {
		return
	}
	c.watching = true
	c.silentQuarters = 1
	c.watchdog.Reset(c.options.StallTimeout / stallQuarters)
}

// checkStall is the watchdog. It ends the connection if responses are due and nothing has come for StallTimeout, unless
// the goroutine that reads is at work, see Call.Decode.
func (c *Conn) checkStall() {
	c.mu.Lock()
	due := c.inFlight()
	stalled := due > 0 && !c.processing && c.silentQuarters == stallQuarters
	c.watching = due > 0
	if c.watching {
		c.silentQuarters++
		c.watchdog.Reset(c.options.StallTimeout / stallQuarters)
	}
	c.mu.Unlock()
	if stalled {
		c.Cut(fmt.Errorf("%w: no byte for %v with %d requests outstanding", ErrStalled, c.options.StallTimeout, due))
	}
}

// responseDecoder decodes what the server sends and matches the responses with the calls in
// flight, oldest first. It does no I/O and needs no mutex: only the goroutine that owns the
// read side uses it, see readTurn.
type responseDecoder struct {
	size       Size
	keepEvents bool // if false, EVENTs are dropped
	maxPart    int  // see Options.MaxPart

	buf      []byte
	lo, hi   int      // buf[lo:hi] has been read and not been decoded
	begun    bool     // Call.Decode has begun with a response that has not ended: no EVENT can come
	expected callList // calls in flight
	frames   uint64   // responses and EVENTs that have been decoded

	// What the last decode has found.
	responses int
	done      []*Call // calls that have all of their responses; afterwards only their number counts
	bytes     int     // size of the frames of these calls
	events    []Event // alias buf
}

// space returns the free end of the buffer. It is large enough for any frame to be completed. The buffer grows only
// for Call.Decode.
func (d *responseDecoder) space() []byte {
	if d.lo == d.hi {
		d.lo, d.hi = 0, 0
	} else if len(d.buf)-d.hi < codec.MaxFrame {
		d.hi = copy(d.buf, d.buf[d.lo:d.hi])
		d.lo = 0
	}
	if len(d.buf)-d.hi < codec.MaxFrame {
		d.buf = slices.Grow(d.buf, codec.MaxFrame)
		d.buf = d.buf[:cap(d.buf)]
	}
	return d.buf[d.hi:]
}

// partial reports whether a frame has begun that is not complete.
func (d *responseDecoder) partial() bool { return d.begun || d.lo < d.hi }

// decode decodes all frames that are complete, after n bytes have been read into the space.
func (d *responseDecoder) decode(n int) error {
	d.events = d.events[:0]
	d.done = d.done[:0]
	d.responses = 0
	d.bytes = 0
	d.hi += n
	for d.lo < d.hi {
		n, err := d.decodeFrame(d.buf[d.lo:d.hi])
		d.lo += n
		switch {
		case errors.Is(err, codec.ErrShort):
			return nil
		case err != nil:
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

// decodeFrame decodes the frame at the start of src, or a part of it, and returns how many bytes it has used.
func (d *responseDecoder) decodeFrame(src []byte) (int, error) {
	due := d.expected.n > 0
	if due && !d.keepEvents && d.frames-d.expected.first.before >= MaxOutstanding { // H4
		return 0, fmt.Errorf("%d responses and EVENTs came before one that was due: the server may have dropped it",
			MaxOutstanding)
	}
	switch {
	case codec.Op(src[0]) == codec.OpEvent && !d.begun: // H8: an EVENT may precede any response
		return d.decodeEvent(src)
	case !due:
		return 0, fmt.Errorf("byte 0x%02x came unasked", src[0])
	case d.expected.first.Decode != nil:
		return d.decodePart(d.expected.first, src)
	default:
		return d.decodeResponse(d.expected.first, src)
	}
}

func (d *responseDecoder) decodeEvent(src []byte) (n int, err error) {
	e, n, err := d.size.DecodeEvent(src)
	if err != nil {
		return 0, err
	}
	d.frames++
	if d.keepEvents {
		d.events = append(d.events, e)
	}
	return n, nil
}

// decodePart decodes the next part of the response to cl, the oldest call in flight. A part that is too long is an error
// as soon as that is known, no matter what comes.
func (d *responseDecoder) decodePart(cl *Call, src []byte) (n int, err error) {
	n, done, err := cl.Decode(src)
	need := len(src) - n + 1
	if short := (*codec.ShortError)(nil); errors.As(err, &short) {
		need = short.Need
	}
	switch {
	case errors.Is(err, codec.ErrShort) && need > d.maxPart:
		return n, fmt.Errorf("the response is longer than %d bytes", d.maxPart)
	case err == nil && done:
		d.begun = false
		d.complete(cl, Response{})
	default:
		d.begun = true
	}
	return n, err
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
	d.complete(cl, response)
	return n, nil
}

// complete adds a response to cl, the oldest call in flight.
func (d *responseDecoder) complete(cl *Call, response Response) {
	d.frames++
	d.responses++
	if cl.Responses = append(cl.Responses, response); len(cl.Responses) == cl.Len() {
		d.done = append(d.done, d.expected.pop())
		d.bytes += len(cl.frames)
	}
}
