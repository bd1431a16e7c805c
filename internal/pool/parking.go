package pool

import (
	"context"
	"errors"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
)

// Parked reports whether the server was parked when this was last seen. Its records then do
// not expire.
func (p *Pool[T]) Parked() bool { return p.parking.Parked() }

// MayPark reports whether Park parks the server: Options.Parking is not Never.
func (p *Pool[T]) MayPark() bool { return p.parking.May() }

// Park parks the server, and has the pool park it again if it is restarted. A server that is
// parked stays parked: records outlive their TTLs there, and without parking they would lock
// it up. Park does nothing if Options.Parking is Never.
//
// Sent reports whether the server may have been parked despite an error. An error that
// matches [parking.ErrForeign] or [parking.ErrNotParked] says that it can't be parked.
func (p *Pool[T]) Park(ctx context.Context) (sent bool, err error) {
	if !p.parking.Want() {
		return false, nil
	}
	return p.keepParked(ctx)
}

// HoldParked says that the pool's callers create records for which the server should stay
// parked. From then on, each call that creates records keeps the server parked if it is,
// whether or not that is known, and the pool parks a server again that was restarted.
func (p *Pool[T]) HoldParked() { p.parking.Hold() }

// appendPark has a call that creates records keep the server parked.
func (p *Pool[T]) appendPark(cl *conn.Call[T]) {
	if cl.Creates() && !cl.Parks && p.parking.Appends() {
		cl.Parks = conn.Add(cl, parking.Update[T]()) == nil
	}
}

// trimPark removes the reply to what appendPark has added.
func (p *Pool[T]) trimPark(cl *conn.Call[T]) {
	if !cl.Parks {
		return
	}
	last := len(cl.Replies) - 1
	p.parking.Learn(cl.Replies[last].OK)
	cl.Replies = cl.Replies[:last]
	if !p.parking.Parked() && p.parking.Wanted() {
		p.keepParkedSoon()
	}
}

// keepParkedSoon runs keepParked in the background. If that is under way, it runs once more: the
// server's timer may have been set after its UPDATE.
func (p *Pool[T]) keepParkedSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepDue = true
	if p.closed || p.keeping {
		return
	}
	p.keeping = true
	p.background.Go(func() {
		for p.beginKeeping() {
			if _, err := p.keepParked(p.ctx); err != nil {
				p.endKeeping() // what fails is done by the next connection, or by the maintenance
				return
			}
		}
	})
}

// beginKeeping reports whether keepParked has to run once more. If not, keepParkedSoon starts it
// from now on.
func (p *Pool[T]) beginKeeping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeping = p.keepDue
	p.keepDue = false
	return p.keeping
}

func (p *Pool[T]) endKeeping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeping, p.keepDue = false, false
}

// keepParked learns whether the server is parked, keeps it parked, and parks it if that is
// wanted. Nothing is retried: if a connection ends, its successor learns it.
func (p *Pool[T]) keepParked(ctx context.Context) (sent bool, err error) {
	last, _, err := p.sendPark(ctx, parking.Query())
	if err != nil {
		return false, err
	}
	r := parking.Record{Found: last.OK, Unit: last.TTL.Unit, Quota: uint64(last.Quota)}
	err = parking.Keep[T](p.parking, r, func(requests ...codec.Request) (bool, error) {
		last, sentNow, err := p.sendPark(ctx, requests...)
		sent = sent || sentNow
		return last.OK, err
	})
	return sent, err
}

// sendPark sends requests in one call and returns the last reply.
func (p *Pool[T]) sendPark(ctx context.Context, requests ...codec.Request) (last conn.Reply[T], sent bool, err error) {
	cl := p.o.Calls.Get()
	cl.Unasked = true
	for _, r := range requests {
		if err := conn.Add(cl, r); err != nil {
			return last, false, err
		}
	}
	if err := p.sendUnasked(ctx, cl); err != nil {
		p.o.Calls.Put(cl)
		return last, false, err
	}
	done, sent, err := cl.Wait(ctx)
	if err == nil {
		last, sent = cl.Replies[cl.Len()-1], true
	}
	if done {
		p.o.Calls.Put(cl)
	}
	return last, sent, err
}

// sendUnasked is send for a call that no caller needs: another connection is not made for it,
// unless there is none.
func (p *Pool[T]) sendUnasked(ctx context.Context, cl *conn.Call[T]) error {
	if c, _ := p.pick(); c != nil {
		if err := c.Enqueue(cl, true); !errors.Is(err, conn.ErrGone) {
			return err
		}
		p.discard(c)
	}
	return p.send(ctx, cl, true)
}
