package throttr

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"
)

// DefaultServer is where a client connects that is told no server.
const DefaultServer = "127.0.0.1:9000"

const (
	// maxOutstanding is how many responses a server keeps for a connection: it silently
	// drops those beyond, EVENTs included (H4).
	maxOutstanding = 1024
	// maxInFlight is the most requests that may be without their answer on a connection.
	maxInFlight = maxOutstanding - 1
)

// Config says which servers a client uses, and how. The zero value works: every
// field has a default.
type Config struct {
	// Servers are addresses, "host:port" or "unix:///path/to/socket". Each key
	// lives on one of them, see docs/design.md: the texts given here decide which,
	// in any order. Default: DefaultServer alone.
	Servers []string

	// MaxConns is the number of connections per server, each of which carries many
	// requests at once. A further one is opened when the others are busy. Default: 4.
	MaxConns int
	// MaxInFlight is the number of requests per connection that may be without
	// their answer, 1 to 1023. Default: 512.
	MaxInFlight int
	// FenceEvery is after how many requests on a connection a WHOAMI is sent, whose answer
	// shows whether answers have been lost or have come twice on the way, so that they go to
	// the wrong callers; the connection is then given up with ErrProtocol. Answers that are not
	// all alike mostly show it by themselves. Only for servers that know WHOAMI, as those of
	// protocol 7.3.2 do: on another it stalls every connection (H6). A few hundred costs next
	// to nothing. Default, 0: never.
	FenceEvery int
	// MaxWaiting is the number of requests per connection that may wait for their turn
	// to be sent. One more fails with ErrOverloaded. Default: 65536.
	MaxWaiting int
	// MaxAnswer is how many bytes of an answer without a bound of its own are held at a time,
	// 16384 to 2^30: all of the answer to Channel, which is 9 bytes and 40 for each
	// subscription, and a fragment of those to List, KeyStats, Connections and Channels, of
	// which real servers have less than 24 KiB. More is an error that matches ErrProtocol.
	// What is made of the bytes can take up to 8 times as many. Default: 4 MiB.
	MaxAnswer int
	// MaxRetries is how often a request is sent again that was certainly not
	// executed, or that only reads. Anything else is never repeated. Negative: never.
	// Default: 2.
	MaxRetries int

	// ConnectTimeout bounds making a connection, the value-size probe included.
	// Default: 5 s.
	ConnectTimeout time.Duration
	// StallTimeout is how long requests may be outstanding without a byte from the
	// server before the connection is given up with ErrStalled; it may take a
	// quarter longer to be noticed. Default: 5 s.
	StallTimeout time.Duration
	// MaxConnAge is how long a connection is used before it is replaced. Negative:
	// for ever. Default: 1 h.
	MaxConnAge time.Duration
	// MaxConnIdle is how long a connection that is not the last of its server stays
	// open without a request. Negative: for ever. Default: 5 min.
	MaxConnIdle time.Duration
	// HealthInterval is how often connections are checked for age and idleness, and
	// an idle one with a QUERY. Default: 30 s.
	HealthInterval time.Duration

	// RetryPause is how long a server that can't be reached is left alone before it is
	// tried again, by the client itself and in the background; until it is back, requests
	// to it fail at once with ErrUnavailable. Each pause is twice as long as the one
	// before. Default: 100 ms.
	RetryPause time.Duration
	// MaxRetryPause bounds these pauses. Default: 5 s.
	MaxRetryPause time.Duration

	// Dial makes a network connection; network is "tcp" or "unix". Default: that of
	// a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, if not nil, is used for the connections, for those who put a TLS proxy in
	// front of a server. Its ServerName defaults to the host of the address. A proxy
	// may cut a write in pieces, so that exact windows (see Backend) depend on its not
	// doing so.
	TLS *tls.Config
}

// withDefaults returns c with every default filled in, or an error that matches
// ErrConfig and names the field and its bound.
func (c Config) withDefaults() (Config, error) {
	if len(c.Servers) == 0 {
		c.Servers = []string{DefaultServer}
	}
	seen := make(map[string]bool, len(c.Servers))
	for _, s := range c.Servers {
		if _, err := parseAddress(s); err != nil {
			return c, err
		}
		if seen[s] {
			return c, fmt.Errorf("%w: Servers: %q is given twice", ErrConfig, s)
		}
		seen[s] = true
	}
	for _, f := range []struct {
		name     string
		value    *int
		initial  int
		min      int
		max      int
		negative bool
	}{
		{"MaxConns", &c.MaxConns, 4, 1, 1 << 10, false},
		{"MaxInFlight", &c.MaxInFlight, 512, 1, maxInFlight, false},
		{"FenceEvery", &c.FenceEvery, 0, 0, 1 << 30, false},
		{"MaxWaiting", &c.MaxWaiting, 1 << 16, 1, 1 << 24, false},
		{"MaxAnswer", &c.MaxAnswer, 4 << 20, readSize, 1 << 30, false},
		{"MaxRetries", &c.MaxRetries, 2, 1, 100, true},
	} {
		if *f.value == 0 {
			*f.value = f.initial
		}
		switch {
		case f.negative && *f.value > f.max:
			return c, fmt.Errorf("%w: %s is %d, must be at most %d", ErrConfig, f.name, *f.value, f.max)
		case !f.negative && (*f.value < f.min || *f.value > f.max):
			return c, fmt.Errorf("%w: %s is %d, must be %d to %d", ErrConfig, f.name, *f.value, f.min, f.max)
		}
	}
	for _, f := range []struct {
		name     string
		value    *time.Duration
		initial  time.Duration
		negative bool
	}{
		{"ConnectTimeout", &c.ConnectTimeout, 5 * time.Second, false},
		{"StallTimeout", &c.StallTimeout, 5 * time.Second, false},
		{"MaxConnAge", &c.MaxConnAge, time.Hour, true},
		{"MaxConnIdle", &c.MaxConnIdle, 5 * time.Minute, true},
		{"HealthInterval", &c.HealthInterval, 30 * time.Second, false},
		{"RetryPause", &c.RetryPause, 100 * time.Millisecond, false},
		{"MaxRetryPause", &c.MaxRetryPause, 5 * time.Second, false},
	} {
		if *f.value == 0 {
			*f.value = f.initial
		}
		if *f.value < 0 && !f.negative {
			return c, fmt.Errorf("%w: %s is %v, must be positive", ErrConfig, f.name, *f.value)
		}
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c, nil
}

// address is where a server listens.
type address struct {
	network string // "tcp" or "unix"
	address string // "host:port" or a path
}

// parseAddress reads an element of Config.Servers.
func parseAddress(s string) (address, error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		if path == "" {
			return address{}, fmt.Errorf("%w: Servers: %q has no path", ErrConfig, s)
		}
		return address{network: "unix", address: path}, nil
	}
	if strings.Contains(s, "://") { // which may have a password
		return address{}, fmt.Errorf("%w: Servers has a URL: use the Config that ParseURL makes of it", ErrConfig)
	}
	switch _, port, err := net.SplitHostPort(s); {
	case err != nil:
		return address{}, fmt.Errorf("%w: Servers: %q is neither host:port nor unix:///path: %w", ErrConfig, s, err)
	case port == "":
		return address{}, fmt.Errorf("%w: Servers: %q has no port", ErrConfig, s)
	}
	return address{network: "tcp", address: s}, nil
}
