package load

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/throttr-go/throttr/internal/dial"
)

// MaxResponses is the largest number of responses that a connection may wait for. A server
// silently drops those beyond 1024 (H4); one place is kept free.
const MaxResponses = 1023

// responseTimeout is how long responses may take after the end of a measurement, and drainTimeout
// after the end of its context. Without the latter, a server could execute the last requests after
// those that clean up.
const (
	responseTimeout = 5 * time.Second
	drainTimeout    = time.Second
)

// RawConfig says what a [Raw] sends.
type RawConfig struct {
	Servers     []dial.Address
	Conns       int // per server; there are fewer if there are fewer outstanding operations
	Outstanding int // operations that are sent and have no response, over all connections
	Frames      Frames
	Keys        KeySet                                                               // that operations pick from at random
	Dial        func(ctx context.Context, network, address string) (net.Conn, error) // nil: that of a net.Dialer
}

// Raw generates load without a client. It writes requests that are encoded in advance, keeps
// a number of operations outstanding, and only counts the bytes of the responses. Its speed is
// the limit that servers and network set to every client.
//
// Every connection is used by one goroutine.
type Raw struct {
	servers int
	conns   []*rawConn // conn i is to server i modulo servers
}

// NewRaw opens the connections.
func NewRaw(ctx context.Context, cfg RawConfig) (*Raw, error) {
	r := &Raw{servers: len(cfg.Servers)}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	n := min(cfg.Conns*r.servers, cfg.Outstanding)
	for i := range n {
		depth := (cfg.Outstanding + i) / n // the sum over all i is Outstanding
		if depth*cfg.Frames.Responses > MaxResponses {
			r.Close()
			return nil, fmt.Errorf("%d outstanding on %d connections are more than the %d responses that a server keeps for each (H4)", cfg.Outstanding, n, MaxResponses)
		}
		a := cfg.Servers[i%r.servers]
		nc, err := cfg.Dial(ctx, a.Network, a.Address)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.conns = append(r.conns, newRawConn(nc, cfg.Frames, depth, cfg.Keys, i))
	}
	return r, nil
}

// Measure implements [Contender].
func (r *Raw) Measure(ctx context.Context, cfg Config) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg.Goroutines = len(r.conns)
	deadline := time.Now().Add(cfg.Warmup + cfg.Duration + responseTimeout)
	res, err := RunLoops(ctx, cfg, func(ctx context.Context, i int, m *Meter) {
		c := r.conns[i]
		c.SetDeadline(deadline)
		defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Now().Add(drainTimeout)) })()
		if err := c.run(m); err != nil {
			cancel(err)
		}
	})
	if err == nil {
		err = context.Cause(ctx) // a connection may fail after the end, while it waits for its last responses
	}
	return res, err
}

// Conns returns the number of connections per server.
func (r *Raw) Conns() int { return (len(r.conns) + r.servers - 1) / r.servers }

// Close closes the connections.
func (r *Raw) Close() {
	for _, c := range r.conns {
		c.Close()
	}
}
