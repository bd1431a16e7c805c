package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/valuesize"
	"github.com/throttr-go/throttr/pubsub"
	_ "github.com/throttr-go/throttr/redisbackend" // redis://
)

// client is a [throttr.Client] of any value size.
type client interface {
	limiter() *throttr.RateLimit // of one Backend per client
	insert(ctx context.Context, key string, quota uint64, ttl time.Duration) (bool, error)
	query(ctx context.Context, key string) (counter, bool, error)
	queryAll(ctx context.Context, keys []string) ([]counter, error)
	largest() uint64 // value
	update(ctx context.Context, key string, attribute codec.Attribute, change codec.Change, value uint64) (bool, error)
	set(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error)
	get(ctx context.Context, key string) (buffer, bool, error)

	Purge(ctx context.Context, key string) (bool, error)
	List(ctx context.Context) iter.Seq2[inspect.Record, error]
	Stat(ctx context.Context, key string) (inspect.Usage, bool, error)
	KeyStats(ctx context.Context) iter.Seq2[inspect.KeyUsage, error]
	Info(ctx context.Context) ([]inspect.Info, error)
	Sweep(ctx context.Context, dryRun bool) ([]inspect.Swept, error)
	WhoAmI(ctx context.Context) ([]inspect.Identity, error)
	Connections(ctx context.Context) iter.Seq2[inspect.Connection, error]
	Connection(ctx context.Context, server string, id codec.ConnID) (inspect.Connection, bool, error)
	Publish(ctx context.Context, channel string, payload []byte) (bool, error)
	Subscribe(ctx context.Context, channel string, opts ...pubsub.Option) (*pubsub.Subscription, error)
	Channels(ctx context.Context) iter.Seq2[inspect.Channel, error]
	Channel(ctx context.Context, name string) ([]inspect.Subscriber, bool, error)
	Stats() throttr.Stats
	Close() error
}

// counter is a [throttr.Counter] of any value size.
type counter struct {
	found bool // set by queryAll only
	quota uint64
	ttl   time.Duration
	unit  codec.Unit
}

// buffer is a [throttr.Buffer] of any value size.
type buffer struct {
	value []byte
	ttl   time.Duration
}

// connect connects to servers of any value size, which must be the same for all. Each server
// is asked for its value size once if that is 2 bytes, and twice otherwise.
func connect(ctx context.Context, g *globals) (client, error) {
	cfg, err := g.config()
	if err != nil {
		return nil, err
	}
	return connectTo(ctx, cfg)
}

// connectTo is connect for a Config.
func connectTo(ctx context.Context, cfg throttr.Config) (client, error) {
	c, err := open[uint16](ctx, cfg)
	var one, other *throttr.ValueSizeError
	if !errors.As(err, &one) {
		return c, err
	}
	switch one.Actual {
	case 1:
		c, err = open[uint8](ctx, cfg)
	case 4:
		c, err = open[uint32](ctx, cfg)
	default:
		c, err = open[uint64](ctx, cfg)
	}
	if errors.As(err, &other) {
		return nil, fmt.Errorf("%w: %s has values of %s, and %s of %s; servers that are used together must have the same",
			throttr.ErrValueSizeMismatch, one.Server, sizeName(one.Actual), other.Server, sizeName(other.Actual))
	}
	return c, err
}

// config returns the settings of a client of the servers. It connects now, as their value size must be known.
func (g *globals) config() (throttr.Config, error) {
	cfg, err := parseServers(g.serversOrDefault())
	cfg.Dial, cfg.Lazy = g.dial, false
	return cfg, err
}

// serversOrDefault returns the flag, or the environment variable.
func (g *globals) serversOrDefault() string { return cmp.Or(g.servers, os.Getenv("THROTTR_SERVERS")) }

// parseServers parses addresses, separated by commas, or a URL.
func parseServers(servers string) (throttr.Config, error) {
	scheme, _, hasScheme := strings.Cut(servers, "://")
	many := strings.Contains(servers, ",")
	switch {
	case servers == "":
		return throttr.Config{Servers: []string{throttr.DefaultServer}}, nil
	case !hasScheme:
		return throttr.ParseURL("throttr://" + servers)
	case many && (scheme == "unix" || strings.Contains(scheme, ",")):
		return throttr.Config{Servers: strings.Split(servers, ",")}, nil
	}
	return throttr.ParseURL(servers)
}

func sizeName(n int) string {
	if n == 1 {
		return "1 byte (uint8)"
	}
	return fmt.Sprintf("%d bytes (uint%d)", n, 8*n)
}

func open[T codec.Value](ctx context.Context, cfg throttr.Config) (client, error) {
	c, err := throttr.Connect[T](ctx, cfg)
	if err != nil {
		return nil, err
	}
	limits := sync.OnceValue(func() *throttr.RateLimit {
		return newLimiter(c.Backend())
	})
	return typed[T]{c, limits}, nil
}

// newLimiter returns a rate limit for a person, who waits, and sees the errors.
func newLimiter(b throttr.Backend) *throttr.RateLimit {
	return throttr.NewRateLimit(b, throttr.WithTimeout(time.Minute), throttr.WithLogger(nil))
}

// typed implements client.
type typed[T codec.Value] struct {
	*throttr.Client[T]
	limits func() *throttr.RateLimit
}

// limiter returns the rate limit of the client, whose Backend is made by the first call.
func (c typed[T]) limiter() *throttr.RateLimit { return c.limits() }

func (c typed[T]) insert(ctx context.Context, key string, quota uint64, ttl time.Duration) (bool, error) {
	q, err := narrow[T]("quota", quota)
	if err != nil {
		return false, err
	}
	t, err := codec.TTLOf[T](ttl)
	if err != nil {
		return false, err
	}
	return c.Insert(ctx, key, q, t)
}

func (c typed[T]) query(ctx context.Context, key string) (counter, bool, error) {
	a, ok, err := c.Query(ctx, key)
	return counter{quota: uint64(a.Quota), ttl: a.TTL.Duration(), unit: a.TTL.Unit}, ok, err
}

// queryAll reads counters in one batch.
func (c typed[T]) queryAll(ctx context.Context, keys []string) ([]counter, error) {
	var b throttr.Batch[T]
	replies := make([]throttr.CounterReply[T], len(keys))
	for i, key := range keys {
		replies[i] = b.Query(key)
	}
	if err := c.Do(ctx, &b); err != nil {
		return nil, err
	}
	all := make([]counter, len(keys))
	for i, r := range replies {
		a, found, err := r.Counter()
		if err != nil {
			return nil, err
		}
		all[i] = counter{found, uint64(a.Quota), a.TTL.Duration(), a.TTL.Unit}
	}
	return all, nil
}

func (c typed[T]) largest() uint64 { return uint64(^T(0)) }

func (c typed[T]) update(ctx context.Context, key string, attribute codec.Attribute, change codec.Change, value uint64) (bool, error) {
	field := "quota"
	if attribute == codec.TimeToLive {
		field = "TTL"
	}
	v, err := narrow[T](field, value)
	if err != nil {
		return false, err
	}
	return c.Update(ctx, key, attribute, change, v)
}

func (c typed[T]) set(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	t, err := codec.TTLOf[T](ttl)
	if err != nil {
		return false, err
	}
	return c.Set(ctx, key, value, t)
}

func (c typed[T]) get(ctx context.Context, key string) (buffer, bool, error) {
	a, ok, err := c.Get(ctx, key)
	return buffer{value: a.Value, ttl: a.TTL.Duration()}, ok, err
}

// narrow returns n as a T, or an error that names the value size that would do.
func narrow[T codec.Value](field string, n uint64) (T, error) {
	if n <= uint64(^T(0)) {
		return T(n), nil
	}
	return 0, &throttr.RangeError{
		Field: field, Value: fmt.Sprint(n), Size: codec.Size[T](),
		Bound: fmt.Sprintf("at most %d", uint64(^T(0))),
		Needs: valuesize.Smallest(func(maxValue uint64) bool { return n <= maxValue }),
	}
}

// forEachServer calls do with a client of each server.
func forEachServer(ctx context.Context, cfg throttr.Config, do func(client) error) error {
	for _, server := range cfg.Servers {
		one := cfg
		one.Servers = []string{server}
		c, err := connectTo(ctx, one)
		if err != nil {
			return err
		}
		err = do(c)
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
