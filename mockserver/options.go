package mockserver

import (
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/servicetime"
)

// Option changes how a server is started.
type Option func(*options)

type options struct {
	valueSize int
	virtual   bool
	network   string
	addr      string
	split     int
	thread    *servicetime.Thread
	threadErr error
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

// WithThread makes the server spend time on each request, one request at a time, as a
// real server does. It serves the benchmarks of this module: the package of its
// argument is internal. To delay responses in a test, use [Server.Inject] and
// [Fault.Delay].
//
// [Start] refuses it together with [WithVirtualClock] or the network "memory". A
// Thread belongs to one server.
func WithThread(t *servicetime.Thread) Option { return func(o *options) { o.thread = t } }

// WithServiceTime is WithThread.
//
// Deprecated: it goes as soon as the command uses WithThread.
func WithServiceTime(d time.Duration) Option {
	return func(o *options) {
		if d != 0 {
			o.thread, o.threadErr = servicetime.New(d)
		}
	}
}

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
	if o.threadErr != nil {
		return fmt.Errorf("mockserver: %w", o.threadErr)
	}
	if o.thread != nil && (o.virtual || o.network == "memory") {
		return errors.New("mockserver: WithThread needs the real clock and a socket")
	}
	return nil
}
