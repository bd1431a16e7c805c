package throttr

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
)

// probeTail is the length of the random end of a probe's key in bytes.
const probeTail = 16

// dial makes a network connection to a server, with TLS if the Config says so.
func dial(ctx context.Context, cfg *Config, addr address) (net.Conn, error) {
	nc, err := cfg.Dial(ctx, addr.network, addr.address)
	if err != nil || cfg.TLS == nil {
		return nc, err
	}
	conf := cfg.TLS.Clone()
	if host, _, err := net.SplitHostPort(addr.address); err == nil && conf.ServerName == "" {
		conf.ServerName = host
	}
	tc := tls.Client(nc, conf)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return tc, nil
}

// probe asks a server for its value size, in one round trip, and returns it and
// what came after the answer. EVENTs that come before are counted and skipped: they are
// read as T, which is safe, as nothing else is sent before the size is known. Where ctx
// ends before, nc is closed.
func probe[T codec.Value](ctx context.Context, nc net.Conn, events *atomic.Uint64) (size int, rest []byte, err error) {
	stop := context.AfterFunc(ctx, func() { nc.Close() }) // not all that Config.Dial may return has deadlines
	defer func() {
		if !stop() {
			err = context.Cause(ctx)
		}
	}()
	tail := make([]byte, probeTail)
	rand.Read(tail)
	frames, err := codec.AppendProbe(nil, tail)
	if err != nil {
		return 0, nil, err
	}
	if _, err := nc.Write(frames); err != nil {
		return 0, nil, err
	}
	return readProbe[T](nc, events)
}

// readProbe reads the answers to a probe.
func readProbe[T codec.Value](nc net.Conn, events *atomic.Uint64) (size int, rest []byte, err error) {
	var statuses []byte
	buf := make([]byte, 0, readSize)
	for {
		for len(buf) > 0 && len(statuses) < codec.ProbeResponses {
			if codec.Op(buf[0]) != codec.OpEvent {
				statuses = append(statuses, buf[0])
				buf = buf[1:]
				continue
			}
			_, n, err := codec.DecodeEvent[T](buf)
			if errors.Is(err, codec.ErrShort) {
				break
			}
			if err != nil {
				return 0, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
			}
			events.Add(1)
			buf = buf[n:]
		}
		size, _, err := codec.DecodeProbe(statuses)
		if err == nil {
			return size, buf, nil
		}
		if !errors.Is(err, codec.ErrShort) {
			return 0, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		if cap(buf)-len(buf) == 0 {
			buf = append(make([]byte, 0, readSize), buf...)
		}
		n, err := nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n == 0 && err != nil {
			return 0, nil, err
		}
	}
}

// withConnectTimeout bounds the making of a connection. The cause is a timeout, but
// not that of a caller's ctx.
func withConnectTimeout(ctx context.Context, cfg *Config) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, cfg.ConnectTimeout,
		fmt.Errorf("no answer for %v: %w", cfg.ConnectTimeout, os.ErrDeadlineExceeded))
}

// open makes a connection that requests can share.
func (p *pool[T]) open(ctx context.Context) (*conn[T], error) {
	nc, early, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	return newConn(nc, early, p), nil
}

// connect makes a network connection to p's server and probes it. It also returns what
// came after the answer. Errors match ErrConnect; that of a wrong value size is a
// *ValueSizeError too.
func (p *pool[T]) connect(ctx context.Context) (nc net.Conn, early []byte, err error) {
	ctx, cancel := withConnectTimeout(ctx, p.cfg)
	defer cancel()
	p.counts.dials.Add(1)
	nc, err = dial(ctx, p.cfg, p.addr)
	if err != nil {
		return nil, nil, fmt.Errorf("%w to %s: %w", ErrConnect, p.server, err)
	}
	size, early, err := probe[T](ctx, nc, &p.counts.events)
	if err == nil && size != codec.Size[T]() {
		err = &ValueSizeError{Server: p.server, Client: codec.Size[T](), Actual: size}
	}
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("%w to %s: %w", ErrConnect, p.server, err)
	}
	return nc, early, nil
}

// ProbeValueSize asks the server at addr, an element of Config.Servers, for its
// value size: 1, 2, 4 or 8 bytes. Only cfg's Dial, TLS and ConnectTimeout matter. It
// is for programs that choose their value type when they run; [Connect] does it by
// itself. Errors match [ErrConnect] or [ErrConfig].
func ProbeValueSize(ctx context.Context, cfg Config, addr string) (int, error) {
	cfg.Servers = []string{addr}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return 0, err
	}
	where, err := parseAddress(addr)
	if err != nil {
		return 0, err
	}
	ctx, cancel := withConnectTimeout(ctx, &cfg)
	defer cancel()
	nc, err := dial(ctx, &cfg, where)
	if err != nil {
		return 0, fmt.Errorf("%w to %s: %w", ErrConnect, addr, err)
	}
	defer nc.Close()
	size, _, err := probe[uint16](ctx, nc, new(atomic.Uint64))
	if err != nil {
		return 0, fmt.Errorf("%w to %s: %w", ErrConnect, addr, err)
	}
	return size, nil
}
