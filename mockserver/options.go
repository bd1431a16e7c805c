package mockserver

import (
	"cmp"
	"fmt"
	"slices"
)

// Option changes how a server is started.
type Option func(*options)

type options struct {
	valueSize int
	virtual   bool
	network   string
	addr      string
	costs     costs
	observer  func(Exec)
	hazards   [hazardCount]bool
	err       error // of an option
}

func defaults() options {
	on := [hazardCount]bool{Grace: true, Wrap: true, Events: true}
	return options{valueSize: 2, network: "tcp", addr: "127.0.0.1:0", hazards: on}
}

// WithValueSize sets the width of quotas and amounts of time: 1, 2, 4 or 8 bytes. The
// default is 2. [Start] refuses any other.
func WithValueSize(n int) Option { return func(o *options) { o.valueSize = n } }

// WithVirtualClock gives the server a clock that stands at [Epoch] until
// [Server.Advance] advances it. The default is the real clock.
func WithVirtualClock() Option { return func(o *options) { o.virtual = true } }

// WithAddr sets where the server listens. The default is "tcp", "127.0.0.1:0".
//
//   - "tcp": addr is a host and a port. Port 0 stands for a free one.
//   - "unix": addr is the path of a socket.
//   - "memory": nothing listens, and only [Server.Dial] connects. addr is any name, and
//     what [Server.Addr] returns. "" stands for "memory:9000".
func WithAddr(network, addr string) Option {
	return func(o *options) { o.network, o.addr = network, addr }
}

// WithHazard switches a hazard of the real server on or off. [Start] refuses one that does not exist.
func WithHazard(h Hazard, on bool) Option {
	return func(o *options) {
		if !h.known() {
			o.err = fmt.Errorf("mockserver: there is no %v", h)
			return
		}
		o.hazards[h] = on
	}
}

// WithRealCollector makes records expire exactly as on a real server: it switches
// [Grace], [LateExpiry] and [LockUp] on.
func WithRealCollector() Option {
	return func(o *options) {
		for _, h := range []Hazard{Grace, LateExpiry, LockUp} {
			o.hazards[h] = true
		}
	}
}

// WithObserver makes the server call f for each executed request, in the order of
// execution and before the response is sent. The server is locked during the call: f
// must be quick, and must not call methods of the server other than [Server.Now].
func WithObserver(f func(Exec)) Option { return func(o *options) { o.observer = f } }

// complete sets defaults that depend on other options, and returns an error if an option is out of range.
func (o *options) complete() error {
	switch {
	case o.err != nil:
		return o.err
	case !slices.Contains([]string{"tcp", "unix", "memory"}, o.network):
		return fmt.Errorf("mockserver: network is tcp, unix or memory, not %q", o.network)
	case o.network == "memory":
		o.addr = cmp.Or(o.addr, "memory:9000")
	}
	if err := o.costs.complete(o.network); err != nil {
		return err
	}
	return checkValueSize(o.valueSize)
}

func checkValueSize(n int) error {
	switch n {
	case 1, 2, 4, 8:
		return nil
	}
	return fmt.Errorf("mockserver: value size is 1, 2, 4 or 8 bytes, not %d", n)
}
