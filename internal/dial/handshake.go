package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
)

// handshake is what a new connection begins with: the probe, a pause if the server may just be
// starting, and what has to be done before any request of a caller.
//
// It has a goroutine, which outlasts Connect if the context of this ends: the responses that are due
// are still received then, and nothing more is sent.
type handshake struct {
	target   *Target
	nc       net.Conn
	receiver *receiver
	events   bool   // the connection is to receive EVENTs
	unsent   []byte // frames that go out next
	due      int    // statuses that they are responded to with
	probed
}

// run takes the handshake's steps. Ctx is that of Connect, opening has the timeout, too.
func (h *handshake) run(ctx, opening context.Context) error {
	err := h.bounded(opening, func() (err error) {
		h.probed, err = probe(h.nc, h.receiver, h.events)
		if err != nil {
			err = hintProbe(err, h.receiver.head, h.target.Dialer.TLS != nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	actual := h.receiver.size
	if size, teller := h.target.Calls.Learn(actual, h.target.Server); size != actual {
		return &ValueSizeError{Server: h.target.Server, Client: size.Bytes(), Actual: actual.Bytes(), teller: teller}
	}
	if err := h.target.AwaitStartUp(ctx, parking.Parks(h.parked)); err != nil {
		return err
	}
	last, cancel := h.target.Dialer.within(ctx)
	defer cancel()
	return h.bounded(last, h.prepare)
}

// bounded runs a step, and ends it when ctx does: at once if the server has had the time of the
// dialer, and otherwise after the grace. A net.Conn of the user may have no deadlines, and so it is
// closed.
func (h *handshake) bounded(ctx context.Context, step func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		if !timedOut(ctx) {
			select {
			case <-over:
				return
			case <-time.After(conn.CloseGrace):
			}
		}
		h.nc.Close()
	})
	err := step()
	close(over)
	if stop() {
		return err
	}
	err = context.Cause(ctx)
	if timedOut(ctx) && len(h.receiver.head) == 0 {
		err = fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return err
}

// timedOut reports whether ctx has ended because of the dialer's timeout.
func timedOut(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), os.ErrDeadlineExceeded)
}

// prepare unsubscribes the connection from the channel of its own id, and has the server stay
// parked, or be parked if that is wanted: the probe's INSERT may have set the server's timer.
func (h *handshake) prepare() error {
	if !h.events {
		if err := h.add(codec.Unsubscribe{Channel: []byte(h.id.String())}.AppendBinary(nil)); err != nil {
			return err
		}
	}
	err := h.target.Parking.KeepParked(h.parked, h.park)
	if err != nil && !errors.Is(err, parking.ErrForeign) && !errors.Is(err, parking.ErrNotParked) {
		return err // otherwise the connection is of use all the same
	}
	_, err = h.roundTrip()
	return err
}

// park sends the requests that park the server.
func (h *handshake) park(insert bool) (ok bool, err error) {
	size := h.receiver.size
	if insert {
		if err := h.add(size.AppendInsert(h.unsent, parking.Insert(size))); err != nil {
			return false, err
		}
	}
	if err := h.add(size.AppendUpdate(h.unsent, parking.Update(size))); err != nil {
		return false, err
	}
	return h.roundTrip()
}

// add sets the frames that go out next, of which the last one was added.
func (h *handshake) add(frames []byte, err error) error {
	h.unsent = frames
	h.due++
	return err
}

// roundTrip sends what is unsent, if there is anything, and returns the last status.
func (h *handshake) roundTrip() (ok bool, err error) {
	if h.due == 0 {
		return false, nil
	}
	if _, err := h.nc.Write(h.unsent); err != nil {
		return false, err
	}
	h.unsent = nil
	for ; h.due > 0; h.due-- {
		status, err := next(h.receiver, codec.DecodeStatus)
		if err != nil {
			return false, err
		}
		ok = bool(status)
	}
	return ok, nil
}
