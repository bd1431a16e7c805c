package testkit

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/mockserver"
)

// Distance connects to a server in memory that is far away, or that is slow. The delays can be
// changed at any time. Bytes stay in order.
type Distance struct {
	Server *mockserver.Server
	There  atomic.Int64 // how long a request travels, in nanoseconds
	Back   atomic.Int64 // how long a response travels
}

// Far returns a Distance of half a round trip in each direction.
func Far(srv *mockserver.Server, roundTrip time.Duration) *Distance {
	d := &Distance{Server: srv}
	d.There.Store(int64(roundTrip / 2))
	d.Back.Store(int64(roundTrip / 2))
	return d
}

// Dial is for Config.Dial. If the client closes a connection, what has not arrived yet is lost.
func (d *Distance) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	theirs, err := d.Server.Dial(ctx)
	if err != nil {
		return nil, err
	}
	ours, far := net.Pipe()
	go carry(theirs, far, &d.There)
	go carry(far, theirs, &d.Back)
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
