// Package dial makes network connections to servers: it parses addresses, dials, adds TLS,
// and asks each server for its value size before anything else is sent to it.
package dial

import (
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
	"github.com/throttr-go/throttr/internal/parking"
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

	// Parking is learned from the server. Connect keeps a server parked, and parks it if that is
	// wanted.
	Parking *parking.Tracker
	// Events counts the EVENTs that come before the connection is ready.
	Events *atomic.Uint64
	// AwaitStartUp waits until the server has been up for long enough to be sent anything but a probe
	// (H17). Parked says that it has been parked.
	AwaitStartUp func(ctx context.Context, parked bool) error
	// Go runs what Connect leaves to be done when its context ends, in a goroutine that ends soon.
	Go func(func())
}

// StartUp is how long a server must have been up before it is sent anything but a probe. Two threads
// share its event loop if requests come as it starts, which kills it (H17).
const StartUp = 100 * time.Millisecond

// Connection is a network connection that has passed the probe.
type Connection struct {
	Conn  net.Conn
	ID    codec.ConnID
	Early []byte // what came after the responses to the probe; conn.New takes it
}

// Connect makes a connection to a server and probes it. The connection receives no EVENTs unless
// events is true: it unsubscribes from the channels that every connection is subscribed to (H21).
//
// Every error matches [ErrConnect]. That of a server of another value size is a
// [*ValueSizeError]; that of a response that can't be one matches [codec.ErrMalformed]; that
// of a server that has accepted the connection and sent no byte matches [ErrSilent].
func Connect(ctx context.Context, t *Target, events bool) (*Connection, error) {
	opening, cancel := t.Dialer.within(ctx)
	defer cancel()
	nc, err := t.Dialer.open(opening, t.Address)
	if err != nil {
		return nil, connectError(t.Server, err)
	}
	h := &handshake{target: t, nc: nc, receiver: newReceiver(nc, t), events: events}
	result := make(chan error)
	t.Go(func() {
		err := h.run(ctx, opening)
		select {
		case result <- err:
		case <-ctx.Done():
			nc.Close()
		}
	})
	select {
	case err = <-result:
	case <-ctx.Done():
		return nil, connectError(t.Server, ctx.Err())
	}
	if err != nil {
		nc.Close()
		return nil, connectError(t.Server, err)
	}
	return &Connection{Conn: nc, ID: h.id, Early: h.receiver.buf}, nil
}

// within returns ctx with the dialer's timeout, whose cause is a timeout but not one of the
// caller's.
func (d *Dialer) within(ctx context.Context) (context.Context, context.CancelFunc) {
	cause := fmt.Errorf("no response for %v: %w", d.Timeout, os.ErrDeadlineExceeded)
	return context.WithTimeoutCause(ctx, d.Timeout, cause)
}

func connectError(server string, err error) error {
	return &ConnectError{Server: server, Err: err}
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
