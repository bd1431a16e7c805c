package pool

import (
	"context"
	"sync"

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

	// mu guards the fields below.
	mu      sync.Mutex
	closed  bool
	running bool // keep runs in the background
	due     bool // soon was called since keep began
}

// init is called once, before all else.
func (k *keeper[T]) init(p *Pool[T]) {
	k.pool, k.tracker = p, parking.NewTracker(p.o.Parking)
	k.tracker.OnChange(p.logParked)
}

// close has soon do nothing any more.
func (k *keeper[T]) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
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

// soon runs keep in the background. If that is under way, it runs once more: the
// server's timer may have been set after its UPDATE.
func (k *keeper[T]) soon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.due = true
	if k.closed || k.running {
		return
	}
	k.running = true
	k.pool.background.Go(func() {
		for k.begin() {
			if _, err := k.keep(k.pool.ctx); err != nil {
				k.end() // what fails is done by the next connection, or by the maintenance
				return
			}
		}
	})
}

// begin reports whether keep has to run once more. If not, soon starts it
// from now on.
func (k *keeper[T]) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = k.due
	k.due = false
	return k.running
}

func (k *keeper[T]) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running, k.due = false, false
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

// send sends requests in one call and returns the last response.
func (k *keeper[T]) send(ctx context.Context, requests ...codec.Request) (last conn.Response[T], sent bool, err error) {
	cl := k.pool.o.Calls.Get()
	cl.Unasked = true
	for _, r := range requests {
		if err := conn.Add(cl, r); err != nil {
			return last, false, err
		}
	}
	if err := k.pool.sendUnasked(ctx, cl); err != nil {
		k.pool.o.Calls.Put(cl)
		return last, false, err
	}
	done, sent, err := cl.Wait(ctx)
	if err == nil {
		last, sent = cl.Responses[cl.Len()-1], true
	}
	if done {
		k.pool.o.Calls.Put(cl)
	}
	return last, sent, err
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
