package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/pubsub"
)

// client is a [throttr.Client] of any value size.
type client interface {
	insert(ctx context.Context, key string, quota uint64, ttl time.Duration) (bool, error)
	query(ctx context.Context, key string) (throttr.Counter[uint64], bool, error)
	queryMany(ctx context.Context, key string, n int) error
	update(ctx context.Context, key string, attribute codec.Attribute, change codec.Change, value uint64) (bool, error)
	set(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error)
	get(ctx context.Context, key string) (throttr.Buffer[uint64], bool, error)

	Purge(ctx context.Context, key string) (bool, error)
	Info(ctx context.Context) ([]inspect.Info, error)
	Sweep(ctx context.Context, dryRun bool) ([]inspect.Swept, error)
	Publish(ctx context.Context, channel string, payload []byte) (bool, error)
	Subscribe(ctx context.Context, channel string, opts ...pubsub.Option) (*pubsub.Subscription, error)
	Stats() throttr.Stats
	Close() error
}

// config returns the settings of a client of Throttr servers. It connects now, as their value size must be known.
func (e *env) config() (throttr.Config, error) {
	scheme, _, _ := strings.Cut(e.url(), "://")
	if !slices.Contains([]string{"throttr", "throttrs", "unix"}, scheme) {
		return throttr.Config{}, fmt.Errorf("it is for Throttr servers alone, and the store is one of %q", scheme)
	}
	cfg, err := throttr.ParseURL(e.url())
	cfg.Lazy = false
	return cfg, err
}

// connect connects to the servers of the store.
func (e *env) connect(ctx context.Context) (client, error) {
	cfg, err := e.config()
	if err != nil {
		return nil, err
	}
	return connectTo(ctx, cfg)
}

// connectTo connects to servers of any value size, which must be the same for all.
func connectTo(ctx context.Context, cfg throttr.Config) (client, error) {
	sizes := map[int]func(context.Context, throttr.Config) (client, error){
		1: connectSize[uint8], 2: connectSize[uint16], 4: connectSize[uint32], 8: connectSize[uint64],
	}
	c, err := sizes[2](ctx, cfg)
	var one, other *throttr.ValueSizeError
	if errors.As(err, &one) {
		c, err = sizes[one.Actual](ctx, cfg)
	}
	if errors.As(err, &other) {
		err = fmt.Errorf("value size mismatch: %s has %d-byte values, and %s has %d-byte values; "+
			"servers that are used together must have the same", other.Server, other.Actual, one.Server, one.Actual)
	}
	return c, err
}

func connectSize[T codec.Value](ctx context.Context, cfg throttr.Config) (client, error) {
	c, err := throttr.Connect[T](ctx, cfg)
	if err != nil {
		return nil, err
	}
	return typed[T]{c}, nil
}

// typed implements client.
type typed[T codec.Value] struct{ *throttr.Client[T] }

func (c typed[T]) insert(ctx context.Context, key string, quota uint64, ttl time.Duration) (bool, error) {
	t, err := codec.TTLOf[T](ttl)
	q, tooLarge := narrow[T]("quota", quota)
	if err := cmp.Or(tooLarge, err); err != nil {
		return false, err
	}
	return c.Insert(ctx, key, q, t)
}

func (c typed[T]) query(ctx context.Context, key string) (throttr.Counter[uint64], bool, error) {
	a, ok, err := c.Query(ctx, key)
	return throttr.Counter[uint64]{Quota: uint64(a.Quota), TTL: wide(a.TTL)}, ok, err
}

func wide[T codec.Value](t codec.TTL[T]) codec.TTL[uint64] {
	return codec.TTL[uint64]{Amount: uint64(t.Amount), Unit: t.Unit}
}

// queryMany reads a counter many times in one batch.
func (c typed[T]) queryMany(ctx context.Context, key string, n int) error {
	var b throttr.Batch[T]
	for range n {
		b.Query(key)
	}
	return c.Do(ctx, &b)
}

func (c typed[T]) update(ctx context.Context, key string, attribute codec.Attribute, change codec.Change,
	value uint64) (bool, error) {
	v, err := narrow[T](map[codec.Attribute]string{codec.Quota: "quota", codec.TimeToLive: "TTL"}[attribute], value)
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

func (c typed[T]) get(ctx context.Context, key string) (throttr.Buffer[uint64], bool, error) {
	b, ok, err := c.Get(ctx, key)
	return throttr.Buffer[uint64]{Value: b.Value, TTL: wide(b.TTL)}, ok, err
}

// narrow returns n as a T, or an error that names the value size that would do.
func narrow[T codec.Value](field string, n uint64) (T, error) {
	if n <= uint64(^T(0)) {
		return T(n), nil
	}
	return 0, &throttr.RangeError{
		Field: field, Value: fmt.Sprint(n), Size: codec.Size[T](), Bound: fmt.Sprintf("at most %d", uint64(^T(0))),
		Needs: api.SmallestSize(func(maxValue uint64) bool { return n <= maxValue }),
	}
}
