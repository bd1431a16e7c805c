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
func (p *Pool[T]) Parked() bool { return p.keeper.tracker.Parked() }

// MayPark reports whether Park parks the server: Options.Parking is not Never.
func (p *Pool[T]) MayPark() bool { return p.keeper.tracker.May() }

// Park parks the server, and has the pool park it again if it is restarted. A server that is
// parked stays parked: records outlive their TTLs there, and without parking they would lock
// it up. Park does nothing if Options.Parking is Never.
//
// Sent reports whether the server may have been parked despite an error. An error that
// matches [parking.ErrForeign] or [parking.ErrNotParked] says that it can't be parked.
func (p *Pool[T]) Park(ctx context.Context) (sent bool, err error) {
	if !p.keeper.tracker.Want() {
		return false, nil
	}
	return p.keeper.keep(ctx)
}

// KeepParked says that the pool's callers create records for which the server should stay
// parked. From then on, each call that creates records keeps the server parked if it is,
// whether or not that is known, and the pool parks a server again that was restarted.
func (p *Pool[T]) KeepParked() { p.keeper.tracker.Keep() }

// AddParking has a call that creates records keep the server parked, if it is. Calls of Do and
// Send need no AddParking.
func (p *Pool[T]) AddParking(cl *conn.Call[T]) { p.keeper.add(cl) }

// RemoveParking removes the response to what AddParking has added. The call must have succeeded.
func (p *Pool[T]) RemoveParking(cl *conn.Call[T]) { p.keeper.remove(cl) }

// keeper learns whether the server is parked, and keeps it parked.
type keeper[T codec.Value] struct {
	pool    *Pool[T]
	tracker *parking.Tracker
	wake    chan struct{} // has an element if run is to call keep
}

// init is called once, before all else.
func (k *keeper[T]) init(p *Pool[T]) {
	k.pool = p
	k.tracker = parking.NewTracker(p.o.Parking)
	k.wake = make(chan struct{}, 1)
	k.tracker.OnChange(p.logParked)
}

// soon has run call keep. If it is doing so, it does it once more: the server's timer may have been set
// after its UPDATE.
func (k *keeper[T]) soon() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run is a goroutine of the pool. What fails is done by the next connection, or by the maintenance.
func (k *keeper[T]) run() {
	for {
		select {
		case <-k.wake:
			k.keep(k.pool.ctx)
		case <-k.pool.ctx.Done():
			return
		}
	}
}

// add has a call that creates records keep the server parked.
func (k *keeper[T]) add(cl *conn.Call[T]) {
	if cl.Creates() && !cl.Parks && k.tracker.Appends() {
		cl.Parks = conn.Add(cl, parking.Update[T]()) == nil
	}
}

// remove removes the response to what add has added.
func (k *keeper[T]) remove(cl *conn.Call[T]) {
	if !cl.Parks {
		return
	}
	last := len(cl.Responses) - 1
	k.tracker.Learn(cl.Responses[last].OK)
	cl.Responses = cl.Responses[:last]
	if !k.tracker.Parked() && k.tracker.Wanted() {
		k.soon()
	}
}

// keep learns whether the server is parked, keeps it parked, and parks it if that is
// wanted. Nothing is retried: if a connection ends, its successor learns it.
func (k *keeper[T]) keep(ctx context.Context) (sent bool, err error) {
	last, _, err := k.send(ctx, parking.Query())
	if err != nil {
		return false, err
	}
	r := parking.Record{Found: last.OK, Unit: last.TTL.Unit, Quota: uint64(last.Quota)}
	err = parking.Keep[T](k.tracker, r, func(requests ...codec.Request) (bool, error) {
		last, sentNow, err := k.send(ctx, requests...)
		sent = sent || sentNow
		return last.OK, err
	})
	return sent, err
}

// send sends requests and returns the last response. No connection is made for them, unless there is
// none.
func (k *keeper[T]) send(ctx context.Context, requests ...codec.Request) (last conn.Response[T], sent bool, err error) {
	for {
		c, _ := k.pool.shared.pick()
		if c == nil {
			if c, err = k.pool.shared.acquire(ctx); err != nil {
				return last, false, err
			}
		}
		responses, sent, err := c.RoundTrip(ctx, requests...)
		switch {
		case err == nil:
			return responses[len(responses)-1], sent, nil
		case sent || !errors.Is(err, conn.ErrGone):
			return last, sent, err
		}
		k.pool.shared.discard(c) // it is ending: pick must not return it again
	}
}

// logParked logs that the server was found to be parked, or not to be parked any more, or why it
// can't be parked.
func (p *Pool[T]) logParked(parked bool, err error) {
	switch {
	case err != nil:
		p.log.Warn(err.Error())
	case parked:
		p.log.Info("throttr: server is parked: no record expires there")
	default:
		p.log.Warn("throttr: server is not parked any more: records expire there")
	}
}
