package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// New returns a backend that keeps its windows on the server or cluster of client. The caller
// still owns the client, may use it for other things, and closes it. New panics if client or an
// option is nil.
func New(client rueidis.Client, opts ...rediswindow.Option) *rediswindow.Backend {
	if client == nil {
		panic("redisbackend: New: client is nil")
	}
	return rediswindow.New(adapter{client}, opts...)
}

// adapter is a [rediswindow.Client]. Its commands are neither declared read-only nor retryable: the
// primary must execute them, once.
type adapter struct{ client rueidis.Client }

// EvalSHA implements [rediswindow.Client].
func (a adapter) EvalSHA(ctx context.Context, digest string, keys, args []string) (string, error) {
	reply, err := a.client.Do(ctx, a.client.B().Evalsha().Sha1(digest).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToString()
	return reply, clientError(err)
}

// Eval implements [rediswindow.Client].
func (a adapter) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	reply, err := a.client.Do(ctx, a.client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToString()
	return reply, clientError(err)
}

// Ping implements [rediswindow.Client].
func (a adapter) Ping(ctx context.Context) error {
	if a.client.Mode() != rueidis.ClientModeCluster {
		return clientError(a.client.Do(ctx, a.client.B().Ping().Build()).Error())
	}
	for _, node := range a.client.Nodes() {
		if err := node.Do(ctx, node.B().Ping().Build()).Error(); err != nil {
			return clientError(err)
		}
	}
	return nil
}

// Subscribe implements [rediswindow.Subscriber].
func (a adapter) Subscribe(ctx context.Context, channel string, received func(message string)) error {
	return a.client.Receive(ctx, a.client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { received(m.Message) })
}

// Cluster implements [rediswindow.Client].
func (a adapter) Cluster() (bool, error) { return a.client.Mode() == rueidis.ClientModeCluster, nil }

// Name implements [rediswindow.Client].
func (a adapter) Name() string {
	var addrs []string
	for addr := range a.client.Nodes() {
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return "redis"
	}
	return slices.Min(addrs)
}

// clientError returns an error that also matches [window.ErrClosed] if the client was closed, or
// [window.ErrUnavailable] if the server did not respond.
func clientError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, rueidis.ErrClosing) {
		return fmt.Errorf("%w: %w", window.ErrClosed, err)
	}
	if _, response := rueidis.IsRedisErr(err); response {
		return err
	}
	return fmt.Errorf("%w: %w", window.ErrUnavailable, err)
}
