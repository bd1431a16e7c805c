// Package dial makes network connections to servers: it parses addresses, dials, adds TLS,
// and asks each server for its value size before anything else is sent to it.
package dial

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// Dialer says how connections are made. All fields but TLS must be set.
type Dialer struct {
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	TLS     *tls.Config   // nil: no TLS; an empty ServerName means the host of the address
	Timeout time.Duration // bounds making a connection, the probe included
}

// Target is a server, and what a client knows about it. All fields must be set.
type Target struct {
	Server  string // what errors call the server
	Address Address
	Dialer  *Dialer
	Calls   *conn.Calls // know the client's value size, or learn it from the server
	// Events counts the EVENTs that come before the responses to the probe.
	Events *atomic.Uint64
	// Go runs what Connect leaves to be done when its context ends, in a goroutine that ends soon.
	Go func(func())
}

// StartUp is how long a server must have been up before it is sent anything but a probe. Two threads
// share its event loop if requests come as it starts, which kills it (H17).
const StartUp = 100 * time.Millisecond

// Connection is a network connection that has passed the probe. Nothing else has been sent on it.
type Connection struct {
	Conn  net.Conn
	ID    codec.ConnID
	Early []byte // what came after the responses to the probe; conn.New takes it
	// ParkingRecord is the response to parking.Query. If it parks the server, somebody must set the server's timer again,
	// which the probe's INSERT may have set.
	ParkingRecord conn.Response
}

// Connect makes a connection to a server and probes it. The connection receives no EVENTs of the channel that every
// connection is subscribed to unless events is true (H21): then it stays subscribed.
//
// Every error matches [ErrConnect]. That of a server of another value size is a
// [*ValueSizeError]; that of a response that can't be one matches [codec.ErrMalformed]; that
// of a server that has accepted the connection and sent no byte matches [ErrSilent].
func Connect(ctx context.Context, t *Target, events bool) (*Connection, error) {
	c, err := t.connect(ctx, events)
	if err != nil {
		return nil, &ConnectError{Server: t.Server, Err: err}
	}
	return c, nil
}

func (t *Target) connect(ctx context.Context, events bool) (*Connection, error) {
	opening, cancel := t.Dialer.Within(ctx)
	defer cancel()
	nc, err := t.Dialer.open(opening, t.Address)
	if err != nil {
		return nil, err
	}
	p := probe{in: bufio.NewReaderSize(nc, bufferSize), events: t.Events, found: Connection{Conn: nc}}
	probed := make(chan error, 1)
	t.Go(func() { probed <- p.run(events) })
	select {
	case err = <-probed:
		if err == nil {
			err = t.checkSize(p.size)
		} else {
			err = hintProbe(err, p.head, t.Dialer.TLS != nil)
		}
	case <-opening.Done():
		if ctx.Err() != nil {
			t.Go(func() { leave(nc, probed) })
			return nil, ctx.Err()
		}
		nc.Close() // a net.Conn of the user may have no deadlines
		<-probed
		err = context.Cause(opening)
		if len(p.head) == 0 {
			err = fmt.Errorf("%w: %w", ErrSilent, err)
		}
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &p.found, nil
}

// leave closes a connection once the responses that are due have been received, or conn.CloseGrace is over: what a
// server can't send keeps its memory for good (H16).
func leave(nc net.Conn, probed <-chan error) {
	select {
	case <-probed:
	case <-time.After(conn.CloseGrace):
	}
	nc.Close()
}

// checkSize compares the value size of the server with that of the client, which may learn it.
func (t *Target) checkSize(actual conn.Size) error {
	if size, teller := t.Calls.Learn(actual, t.Server); size != actual {
		return &ValueSizeError{Server: t.Server, Client: size.Bytes(), Actual: actual.Bytes(), teller: teller}
	}
	return nil
}

// Within returns ctx with the dialer's timeout, whose cause is a timeout but not one of the
// caller's.
func (d *Dialer) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	cause := fmt.Errorf("no response for %v: %w", d.Timeout, os.ErrDeadlineExceeded)
	return context.WithTimeoutCause(ctx, d.Timeout, cause)
}

// open makes a network connection, with TLS if there is a configuration for it.
func (d *Dialer) open(ctx context.Context, a Address) (net.Conn, error) {
	nc, err := d.Dial(ctx, a.Network, a.Address)
	if err == nil && nc == nil {
		err = errors.New("the Dial of the Config has returned neither a connection nor an error")
	}
	if err != nil || d.TLS == nil {
		return nc, err
	}
	conf := d.TLS.Clone()
	conf.DynamicRecordSizingDisabled = true // a proxy may forward each record by itself: see conn.Call.SingleRead
	if host, _, err := net.SplitHostPort(a.Address); err == nil && conf.ServerName == "" {
		conf.ServerName = host
	}
	tc := tls.Client(nc, conf)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx) // whose time is over
		}
		return nil, hintHandshake(err)
	}
	return tc, nil
}
