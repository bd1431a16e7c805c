// Package dial makes network connections to servers: it parses addresses, dials, adds TLS,
// and asks each server for its value size before anything else is sent to it.
package dial

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/parking"
)

// Dialer says how connections are made. All fields but TLS must be set.
type Dialer struct {
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	TLS     *tls.Config   // nil: no TLS; an empty ServerName means the host of the address
	Timeout time.Duration // bounds making a connection, the probe included
}

// Connect makes a connection to the server at a and probes it. Server is what errors call the
// server. Early holds the bytes that came after the responses to the probe; conn.New takes
// them. Each EVENT that came before them is added to events. Connect keeps the server parked
// if it is, parks it if that is wanted, and updates s.
//
// Every error matches [ErrConnect]. That of a server of another value size is a
// [*ValueSizeError]; that of a response that can't be one matches [codec.ErrMalformed]; that
// of a server that has accepted the connection and sent no byte matches [ErrSilent].
func Connect[T codec.Value](ctx context.Context, d *Dialer, server string, a Address, s *parking.Tracker, events *atomic.Uint64) (nc net.Conn, early []byte, err error) {
	nc, size, early, err := connect[T](ctx, d, server, a, s, events)
	if err != nil {
		return nil, nil, err
	}
	if size != codec.Size[T]() {
		nc.Close()
		err = &ValueSizeError{Server: server, Client: codec.Size[T](), Actual: size}
		return nil, nil, connectError(server, err)
	}
	return nc, early, nil
}

// ProbeSize returns the value size of the server at a: 1, 2, 4 or 8 bytes. Every error
// matches [ErrConnect].
func ProbeSize(ctx context.Context, d *Dialer, server string, a Address) (int, error) {
	nc, size, _, err := connect[uint16](ctx, d, server, a, parking.NewTracker(parking.Never), new(atomic.Uint64))
	if err != nil {
		return 0, err
	}
	nc.Close()
	return size, nil
}

// connect makes a connection and probes it within the Dialer's timeout.
func connect[T codec.Value](ctx context.Context, d *Dialer, server string, a Address, s *parking.Tracker, events *atomic.Uint64) (nc net.Conn, size int, early []byte, err error) {
	// The cause is a timeout, but not one of the caller's ctx.
	timeout := fmt.Errorf("no response for %v: %w", d.Timeout, os.ErrDeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, timeout)
	defer cancel()
	opened, err := d.open(ctx, a)
	if err != nil {
		return nil, 0, nil, connectError(server, err)
	}
	nc = opened
	r := newReceiver(nc, events)
	stop := context.AfterFunc(ctx, func() { opened.Close() }) // a net.Conn of the user may have no deadlines
	size, err = probe[T](nc, r)
	if size != codec.Size[T]() {
		s = parking.NewTracker(parking.Never) // the caller will not use the server
	}
	if err == nil {
		err = keepParkedSize(size, nc, r, s)
	} else {
		err = hintProbe(err, r.head, d.TLS != nil)
	}
	if !stop() {
		err = context.Cause(ctx)
		if err == timeout && r.silent {
			err = fmt.Errorf("%w: %w", ErrSilent, err)
		}
	}
	if err != nil {
		nc.Close()
		return nil, 0, nil, connectError(server, err)
	}
	return nc, size, r.buf, nil
}

func connectError(server string, err error) error {
	return &ConnectError{Server: server, Err: err}
}

// open makes a network connection, with TLS if there is a configuration for it.
func (d *Dialer) open(ctx context.Context, a Address) (net.Conn, error) {
	nc, err := d.Dial(ctx, a.Network, a.Address)
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
		return nil, hintHandshake(err)
	}
	return tc, nil
}
