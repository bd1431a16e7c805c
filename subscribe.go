package throttr

import (
	"context"
	"fmt"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/pubsub"
)

const (
	// AllChannel, "*", is the channel that every connection is subscribed to: a message on
	// it reaches all connections to the server on which it was published. A subscription to
	// it covers all servers of the client.
	AllChannel = pubsub.All
	// OwnChannel, "throttr:own", stands for the channel of the subscriber's own connection.
	// The real name of that channel is the id of the connection, which Subscription.ConnID
	// returns; publishers use that name. A subscription covers all servers of the client. A
	// channel with the literal name "throttr:own" can be published to, but not subscribed
	// to.
	OwnChannel = pubsub.Own
)

// Overflow says which message a subscription drops if its queue is full.
type Overflow uint8

const (
	DropOldest Overflow = iota // the oldest message of the queue
	DropNewest                 // the message that has just arrived
)

// String returns the name of the policy, such as "drop oldest".
func (o Overflow) String() string {
	switch o {
	case DropOldest:
		return "drop oldest"
	case DropNewest:
		return "drop newest"
	default:
		return fmt.Sprintf("overflow %d", uint8(o))
	}
}

// SubscribeOption changes a subscription.
type SubscribeOption func(*subscribeOptions)

type subscribeOptions struct {
	queue    int
	overflow Overflow
}

// maxQueue is the largest number of messages that a subscription can hold.
const maxQueue = 1 << 24

// WithQueue sets how many messages a subscription holds until they are read: 1 to 16777216.
// The default is 256.
func WithQueue(n int) SubscribeOption { return func(o *subscribeOptions) { o.queue = n } }

// WithOverflow sets which message is dropped if the queue is full. The default is
// [DropOldest].
func WithOverflow(policy Overflow) SubscribeOption {
	return func(o *subscribeOptions) { o.overflow = policy }
}

// newSubscribeOptions applies opts to the defaults. Its errors match ErrConfig.
func newSubscribeOptions(opts []SubscribeOption) (subscribeOptions, error) {
	o := subscribeOptions{queue: 256}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: a SubscribeOption is nil", ErrConfig)
		}
		opt(&o)
	}
	if o.queue < 1 || o.queue > maxQueue {
		return o, fmt.Errorf("%w: WithQueue is %d, must be 1 to %d", ErrConfig, o.queue, maxQueue)
	}
	if o.overflow > DropNewest {
		return o, fmt.Errorf("%w: WithOverflow: there is no %v", ErrConfig, o.overflow)
	}
	return o, nil
}

// Subscribe subscribes to a channel. The channel lives on the server on which a key of the
// same name would live. [AllChannel] and [OwnChannel] exist on every server.
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
// [Message] with Gap set.
//
// If a subscriber is slower than the messages come, its queue fills up and messages are
// dropped. [Subscription.Dropped] counts them. Other subscribers are not affected. A server
// holds at most 1024 messages for a connection, and drops the rest without a trace (H4 in
// docs/protocol.md): Dropped does not count those.
//
// The error is one of these:
//
//   - a [*RequestError], which matches [ErrConnect] if the server can't be reached,
//     [ErrUnavailable] if the last attempt to connect has failed already, and [ErrRefused]
//     if the server answers SUBSCRIBE with failure;
//   - an error that matches [ErrConfig], for an option;
//   - an error that matches [codec.ErrTooLarge], for a channel of more than 255 bytes.
func (c *Client[T]) Subscribe(ctx context.Context, channel string, opts ...SubscribeOption) (*Subscription, error) {
	o, err := newSubscribeOptions(opts)
	if err != nil {
		return nil, err
	}
	if _, err := (codec.Subscribe{Channel: []byte(channel)}).AppendBinary(nil); err != nil {
		return nil, err
	}
	var managers []*pubsub.Manager[T]
	if channel == AllChannel || channel == OwnChannel {
		for _, s := range c.servers.all {
			managers = append(managers, s.subscriptions)
		}
	} else {
		managers = append(managers, c.servers.of(channel).subscriptions)
	}
	sub, server, sent, err := pubsub.Subscribe(ctx, managers, channel, o.queue, o.overflow == DropNewest, &c.subscriptions)
	if err != nil {
		return nil, requestError(server, codec.OpSubscribe, sent, err)
	}
	return &Subscription{sub}, nil
}
