package throttr

import (
	"context"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/api"
	subscriptions "github.com/throttr-go/throttr/internal/pubsub"
	"github.com/throttr-go/throttr/pubsub"
)

// Subscribe subscribes to a channel. The channel lives on the server on which a key of the
// same name would live. [pubsub.All] exists on every server.
//
// Subscribe returns when the server has confirmed the subscription; for a channel on every
// server, when all servers have. Messages published from then on arrive, in the order of
// their server, until the subscription or the client is closed. ctx bounds only the call to
// Subscribe.
//
// Subscriptions use one connection per server, which carries nothing else. The first
// subscription makes it and the last one closes it. Subscriptions to the same channel share
// one SUBSCRIBE. If the connection is lost, the client makes a new one, with a backoff that
// begins at Config.MinBackoff, and subscribes again. Each subscription then receives a
// [pubsub.Message] with Gap set.
//
// If a subscriber is slower than the messages come, its queue fills up and messages are
// dropped. [pubsub.Subscription.Dropped] counts them. Other subscribers are not affected. A server
// holds at most 1024 messages for a connection, and drops the rest without a trace (H4 in
// docs/internals/protocol.md): Dropped does not count those.
//
// The error is one of these:
//
//   - a [*RequestError], which matches [ErrConnect] if the server can't be reached,
//     [ErrUnavailable] if the last attempt to connect has failed already, and [pubsub.ErrRefused]
//     if the server answers SUBSCRIBE with failure;
//   - an error that matches [codec.ErrTooLarge], for a channel of more than 255 bytes.
func (c *client) Subscribe(ctx context.Context, channel string,
	opts ...pubsub.Option) (*pubsub.Subscription, error) {
	o := subscriptions.SubscribeOptions{}
	api.Apply("throttr: Client.Subscribe", &o, opts)
	if _, err := (codec.Subscribe{Channel: []byte(channel)}).AppendBinary(nil); err != nil {
		return nil, err
	}
	var managers []*subscriptions.Manager
	for _, s := range c.servers.all {
		if channel == pubsub.All || s == c.servers.of(channel) {
			managers = append(managers, s.subscriptions)
		}
	}
	sub, failed := subscriptions.Subscribe(ctx, managers, channel, o, &c.subscriptions)
	if failed != nil {
		return nil, &RequestError{Server: failed.Server, Op: codec.OpSubscribe, Sent: failed.Sent, Err: failed.Err}
	}
	return pubsub.New(sub), nil
}
