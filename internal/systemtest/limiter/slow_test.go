package limiter_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/mockserver"
)

// distance connects to a server in memory that is far away, or that is slow. The delays can be
// changed at any time. Bytes stay in order.
type distance struct {
	server *mockserver.Server
	there  atomic.Int64 // how long a request travels, in nanoseconds
	back   atomic.Int64 // how long a response travels
}

// farAway returns a distance of half a round trip in each direction.
func farAway(srv *mockserver.Server, roundTrip time.Duration) *distance {
	d := &distance{server: srv}
	d.there.Store(int64(roundTrip / 2))
	d.back.Store(int64(roundTrip / 2))
	return d
}

// dial is for Config.Dial. If the client closes a connection, what has not arrived yet is lost.
func (d *distance) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	theirs, err := d.server.Dial(ctx)
	if err != nil {
		return nil, err
	}
	ours, far := net.Pipe()
	go carry(theirs, far, &d.there)
	go carry(far, theirs, &d.back)
	return ours, nil
}

// parcel is what arrives at one time.
type parcel struct {
	bytes []byte
	at    time.Time
}

// carry carries bytes with a delay, until either connection is closed. Then it closes both.
func carry(to, from net.Conn, delay *atomic.Int64) {
	parcels := make(chan parcel, 1<<12)
	go func() {
		for p := range parcels {
			time.Sleep(time.Until(p.at))
			to.Write(p.bytes)
		}
	}()
	defer close(parcels)
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 1<<14)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		parcels <- parcel{bytes.Clone(buf[:n]), time.Now().Add(time.Duration(delay.Load()))}
	}
}
