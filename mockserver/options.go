package mockserver

import (
	"errors"
	"fmt"
	"time"
)

// Option changes how a server is started.
type Option func(*options)

type options struct {
	valueSize int
	virtual   bool
	network   string
	addr      string
	split     int
	service   time.Duration
	observer  func(Exec)
	hazards   [hazardCount]bool
}

func defaults() options {
	o := options{valueSize: 2, network: "tcp", addr: "127.0.0.1:0"}
	for h := range o.hazards {
		o.hazards[h] = Hazard(h).Default()
	}
	return o
}

// WithValueSize sets the width of quotas and amounts of time, in bytes: 1, 2, 4
// or 8. The default is 2. [Start] refuses any other.
func WithValueSize(n int) Option { return func(o *options) { o.valueSize = n } }

// WithVirtualClock gives the server a clock that stands at [Epoch] until
// [Server.Advance] moves it. The default is the real clock.
func WithVirtualClock() Option { return func(o *options) { o.virtual = true } }

// WithAddr sets where the server listens. The default is "tcp", "127.0.0.1:0".
//
//   - "tcp": addr is a host and a port, 0 for a free one.
//   - "unix": addr is the path of a socket.
//   - "memory": nothing listens, [Server.Dial] is the only way in. addr is any
//     name, and what [Server.Addr] returns; "" is "memory:9000".
func WithAddr(network, addr string) Option {
	return func(o *options) { o.network, o.addr = network, addr }
}

// WithHazard switches one hazard of the real server on or off.
func WithHazard(h Hazard, on bool) Option {
	return func(o *options) {
		if h.known() {
			o.hazards[h] = on
		}
	}
}

// WithSplit is [Server.Split] from the start.
func WithSplit(n int) Option { return func(o *options) { o.split = n } }

// WithServiceTime has the server take so long for each request, as a real server, which
// executes all of them in one thread, takes some 3 µs: it reads up to 8096 bytes from a
// connection, executes their requests while all other connections wait, and then answers
// them in one write. It spins meanwhile: so short a time can't be slept. The default is 0,
// as fast as it goes.
//
// [Start] refuses it where time does not pass by itself, with a virtual clock or in
// memory, and where it is negative or over [MaxServiceTime].
func WithServiceTime(d time.Duration) Option { return func(o *options) { o.service = d } }

// MaxServiceTime is the longest time of [WithServiceTime].
const MaxServiceTime = time.Millisecond

// WithObserver has f called for each executed request, in the order of execution
// and before its response can leave. The store is locked meanwhile: f must be
// quick, and must not call the server, save for [Server.Now].
func WithObserver(f func(Exec)) Option { return func(o *options) { o.observer = f } }

func (o *options) check() error {
	switch o.valueSize {
	case 1, 2, 4, 8:
	default:
		return fmt.Errorf("mockserver: value size is 1, 2, 4 or 8 bytes, not %d", o.valueSize)
	}
	switch o.network {
	case "tcp", "unix":
	case "memory":
		if o.addr == "" {
			o.addr = "memory:9000"
		}
	default:
		return fmt.Errorf("mockserver: network is tcp, unix or memory, not %q", o.network)
	}
	switch {
	case o.service < 0 || o.service > MaxServiceTime:
		return fmt.Errorf("mockserver: service time is 0 to %v, not %v", MaxServiceTime, o.service)
	case o.service > 0 && (o.virtual || o.network == "memory"):
		return errors.New("mockserver: a service time needs the real clock and a socket")
	}
	return nil
}
