package throttr

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/parking"
)

// DefaultServer is the server that a client connects to if Config.Servers is empty.
const DefaultServer = "127.0.0.1:9000"

// maxInFlight is the largest Config.MaxInFlight: a server silently drops responses beyond
// 1024 that it has not sent yet (H4).
const maxInFlight = conn.MaxOutstanding - 1

// minMaxResponse is the smallest Config.MaxResponse: room for any fragment of a real server, and for any frame with a
// bound of its own.
const minMaxResponse = 24 << 10

// Config says which servers a client uses, and how. The zero value works: every
// field has a default.
type Config struct {
	// Servers lists the addresses, "host:port" or "unix:///path/to/socket". Each key
	// lives on one server; the addresses as written here determine which (see
	// docs/internals/design.md), in any order. Default: DefaultServer.
	Servers []string

	// MaxConns is the number of connections per server, each of which carries many
	// requests at once. Another one is opened when all are busy. Default: 4.
	MaxConns int
	// MaxInFlight is the number of requests per connection that may be in flight, 1 to
	// 1023. What is in flight when the process is killed makes the server slower (H16 in
	// docs/internals/protocol.md); 64 is enough where a round trip takes less than a millisecond. Default: 512.
	MaxInFlight int
	// MaxQueued is the number of requests per connection that may wait to be sent, canceled ones included, of
	// callers per server that may wait for a connection, and of hits on one window that may
	// wait for the server. One more fails with ErrOverloaded. Default: 65536.
	MaxQueued int
	// MaxResponse is the number of bytes that are kept of a response without a bound of its
	// own, 24576 to 2^30: the whole response to Channel, of 9 bytes and 40 for each
	// subscription, and a fragment of the responses to List, KeyStats, Connections and
	// Channels, which real servers keep under 24 KiB. More is an error that matches
	// ErrProtocol. The decoded entries can take up to 8 times as many bytes. Default: 4 MiB.
	MaxResponse int
	// MaxRetries is how often a request is sent again if it was certainly not executed, or
	// only reads. Any other request is never repeated. Negative: never. Default: 2.
	MaxRetries int

	// ConnectTimeout bounds the making of a connection, the value-size probe included, and then
	// again the first requests on it, which are the client's own. Default: 5 s.
	ConnectTimeout time.Duration
	// StallTimeout is how long requests may be outstanding without a byte from the server.
	// The connection then ends with ErrStalled, up to a quarter of StallTimeout later.
	// Default: 5 s.
	StallTimeout time.Duration
	// MaxConnAge is how long a connection is used before it is replaced. Negative:
	// for ever. Default: 1 h.
	MaxConnAge time.Duration
	// MaxConnIdle is how long a connection stays open without a request, if its server
	// has another one. Negative: for ever. Default: 5 min.
	MaxConnIdle time.Duration
	// HealthInterval is the time between two checks of all connections, for their age and for
	// how long they were idle. An idle connection is sent a QUERY. Default: 30 s.
	HealthInterval time.Duration

	// MinBackoff is the first pause before a server that could not be reached is tried
	// again, in the background. Until it is back, requests to it fail at once with
	// ErrUnavailable. Each pause is twice as long as the one before, unless nobody listens at
	// the address: then none is longer than this. Default: 100 ms.
	MinBackoff time.Duration
	// MaxBackoff bounds these pauses. Default: 500 ms.
	MaxBackoff time.Duration

	// Parking says whether servers are parked, so that no record expires there, which could
	// lock them up (H12). Default: ParkingAutomatic.
	Parking Parking

	// Logger logs what happens to the servers:
	//
	//   - a server has locked up (level error), or responds again (info)
	//   - a server is parked (info), is not parked any more or can't be (warn)
	//   - a server takes three times as long for a request as it did (warn)
	//   - a sweep has removed records of dead clients (info), has failed (warn), or had
	//     nothing to do (debug)
	//
	// Default: nothing is logged, but for a line of OpenServers, see Lazy.
	Logger *slog.Logger

	// Lazy makes Connect and Open succeed although servers can't be reached. Requests to
	// such a server fail at once with ErrUnavailable, so that the policy or fallback of a
	// RateLimit decides. The server is tried in the background, at least twice a second, and
	// used as soon as it responds. Connect waits for the first attempts, half a second at most.
	// If a server is not there by then, OpenServers logs a line (warn), by default to slog.Default.
	// If a server has another value size, every request to it fails with
	// ErrValueSizeMismatch, to which no policy applies. Default: servers must be there.
	Lazy bool

	// Dial makes a network connection; network is "tcp" or "unix". It must return when ctx ends:
	// nothing else bounds it. Default: that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, if not nil, is used for all connections, for a TLS proxy in front of a server.
	// Its ServerName defaults to the host of the address. Exact windows (see ServerBackend)
	// need a proxy that does not split writes. A handshake with a Throttr server itself, which
	// does not speak TLS, can crash it (H6).
	TLS *tls.Config
}

// withDefaults returns c with every default filled in, or an error that matches
// ErrConfig and names the field and its bound.
func (c Config) withDefaults() (Config, error) {
	c.Servers = slices.Clone(c.Servers) // the caller may change the slice
	if len(c.Servers) == 0 {
		c.Servers = []string{DefaultServer}
	}
	for i, s := range c.Servers {
		if _, err := dial.ParseAddress(s); err != nil {
			return c, fmt.Errorf("%w: Servers: %w", ErrConfig, err)
		}
		if slices.Contains(c.Servers[:i], s) {
			return c, fmt.Errorf("%w: Servers: %q is given twice", ErrConfig, s)
		}
	}
	if err := c.fill(); err != nil {
		return c, err
	}
	if c.Parking > ParkingAlways {
		return c, fmt.Errorf("%w: Parking is %v, must be automatic, never or always", ErrConfig, c.Parking)
	}
	c.Logger = cmp.Or(c.Logger, outage.Silent)
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c, nil
}

// fill gives each field that is 0 its default, and checks the bounds of the others.
func (c *Config) fill() error {
	const least, most = math.MinInt64, math.MaxInt64 // no bounds
	return cmp.Or(
		fill("MaxConns", &c.MaxConns, 4, 1, 1<<10),
		fill("MaxInFlight", &c.MaxInFlight, 512, 1, maxInFlight),
		fill("MaxQueued", &c.MaxQueued, 1<<16, 1, 1<<24),
		fill("MaxResponse", &c.MaxResponse, 4<<20, minMaxResponse, 1<<30),
		fill("MaxRetries", &c.MaxRetries, 2, math.MinInt, 100),
		fill("ConnectTimeout", &c.ConnectTimeout, 5*time.Second, 1, most),
		fill("StallTimeout", &c.StallTimeout, 5*time.Second, 1, most),
		fill("MaxConnAge", &c.MaxConnAge, time.Hour, least, most),
		fill("MaxConnIdle", &c.MaxConnIdle, 5*time.Minute, least, most),
		fill("HealthInterval", &c.HealthInterval, 30*time.Second, 1, most),
		fill("MinBackoff", &c.MinBackoff, 100*time.Millisecond, 1, most),
		fill("MaxBackoff", &c.MaxBackoff, 500*time.Millisecond, 1, most),
	)
}

// fill gives a field that is 0 its default. It returns an error if another value is out of bounds.
func fill[T int | time.Duration](name string, field *T, def, least, most T) error {
	if *field == 0 {
		*field = def
	}
	if least <= *field && *field <= most {
		return nil
	}
	bound := fmt.Sprintf("%v to %v", least, most)
	if least < 0 {
		bound = fmt.Sprintf("at most %v", most)
	} else if int64(most) == math.MaxInt64 {
		bound = "positive"
	}
	return fmt.Errorf("%w: %s is %v, must be %s", ErrConfig, name, *field, bound)
}

// Parking says whether a client parks its servers. On a parked server no record expires:
// records outlive their TTLs, with a TTL of 0, until they are purged. So the expiry of records
// whose clients have died can't lock the server up (H12 in docs/internals/protocol.md).
//
// A server is parked by a record with the empty key, which List shows and which must not be
// removed. Every client keeps a parked server parked, whatever its Config says. There is no
// way back: if records that are past their TTLs began to expire again, they would lock the
// server up. Restart the server instead, with no client that parks it.
type Parking uint8

const (
	// ParkingAutomatic parks a server if a backend of the client (Client.Backend) finds no
	// records on it but those of windows. Others may rely on their expiry.
	ParkingAutomatic = Parking(parking.Automatic)
	// ParkingNever does not park servers.
	ParkingNever = Parking(parking.Never)
	// ParkingAlways parks every server as soon as there is a connection to it, whatever it
	// holds.
	ParkingAlways = Parking(parking.Always)
)

var parkings = api.Texts{Kind: "parking", Err: ErrConfig, Texts: []string{"automatic", "never", "always"}}

// String returns "automatic", "never" or "always", or the number of an unknown value.
func (p Parking) String() string { return parkings.String(uint8(p)) }

// MarshalText returns what String returns. Errors match [ErrConfig].
func (p Parking) MarshalText() ([]byte, error) { return parkings.Marshal(uint8(p)) }

// UnmarshalText parses what String returns. Errors match [ErrConfig].
func (p *Parking) UnmarshalText(text []byte) error { return parkings.Unmarshal((*uint8)(p), text) }
