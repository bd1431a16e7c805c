package pool

import (
	"context"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
)

// Parked reports whether the server was parked when this was last seen. Its records then do
// not expire.
func (p *Pool) Parked() bool { return p.parking.Parked() }

// MayPark reports whether Park parks the server: Options.Parking is not Never.
func (p *Pool) MayPark() bool { return p.parking.May() }

// Park parks the server, if it can be parked, and has the pool park it again if it is restarted. A server that is
// parked stays parked: records outlive their TTLs there, and without parking they would lock
// it up. Park does nothing if Options.Parking is Never. The server may have been parked despite an error.
func (p *Pool) Park(ctx context.Context) error {
	if !p.parking.Want() {
		return nil
	}
	return p.keepParked(ctx)
}

// KeepParked says that the pool's callers create records for which the server should stay
// parked. From then on, each call that creates records keeps the server parked if it is,
// whether or not that is known, and the pool parks a server again that was restarted.
func (p *Pool) KeepParked() { p.parking.Keep() }

// AddParking has a call that creates records keep the server parked, if it is. Do calls it.
func (p *Pool) AddParking(cl *conn.Call) {
	if cl.Creates() && !cl.Parks && p.parking.Appends() {
		cl.Parks = cl.Update(parking.Update(p.o.Calls.Size())) == nil
	}
}

// RemoveParking removes the response to what AddParking has added. The call must have succeeded.
func (p *Pool) RemoveParking(cl *conn.Call) {
	if !cl.Parks {
		return
	}
	last := len(cl.Responses) - 1
	p.parking.Learn(cl.Responses[last].OK)
	cl.Responses = cl.Responses[:last]
	if !p.Parked() && p.parking.Wanted() {
		p.keepParkedSoon()
	}
}

// keepParkedSoon has keepParked run. If it is running, it does so once more: the server's timer may have been set
// after its UPDATE.
func (p *Pool) keepParkedSoon() {
	select {
	case p.parkingDue <- struct{}{}:
	default:
	}
}

// keepParked learns whether the server is parked, keeps it parked, and parks it if that is
// wanted. Nothing is retried: if a connection ends, its successor learns it.
func (p *Pool) keepParked(ctx context.Context) error {
	return p.onShared(ctx, false, func(c *conn.Conn) error {
		r, err := c.RoundTrip(ctx, func(cl *conn.Call) { conn.Add(cl, parking.Query()) })
		if err != nil {
			return err
		}
		return p.park(ctx, c, r[0])
	})
}

// park does what keepParked does, on a connection, given the response to the Query.
func (p *Pool) park(ctx context.Context, c *conn.Conn, r conn.Response) error {
	size := p.o.Calls.Size()
	return p.parking.KeepParked(r, func(insert bool) (bool, error) {
		responses, err := c.RoundTrip(ctx, func(cl *conn.Call) {
			if insert {
				cl.Insert(parking.Insert(size))
			}
			cl.Update(parking.Update(size))
		})
		return err == nil && responses[len(responses)-1].OK, err
	})
}

// logParked logs that the server was found to be parked, or not to be parked any more, or why it
// can't be parked.
func (p *Pool) logParked(parked bool, err error) {
	switch {
	case err != nil:
		p.log.Warn(err.Error())
	case parked:
		p.log.Info("throttr: server is parked: no record expires there")
	default:
		p.log.Warn("throttr: server is not parked any more: records expire there")
	}
}
