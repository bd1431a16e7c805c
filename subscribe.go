package throttr

import (
	"context"
	"fmt"

	"github.com/throttr-go/throttr/codec"
)

const (
	// AllChannel is the server-wide channel: what is published on it reaches all
	// connections. A subscription to it is one to all servers of the client.
	AllChannel = "*"
	// OwnChannel stands for the channel of the subscriber's own connection, whose name is
	// the connection's id. A subscription to it is one to all servers of the client, and
	// Subscription.ConnID tells the ids, which a publisher must be given. A channel that has
	// this very text for its name can be published to, but not subscribed to.
	OwnChannel = "throttr:own"
)

// Overflow is what happens to a message for which a queue has no place.
type Overflow uint8

const (
	DropOldest Overflow = iota // the oldest message of the queue is dropped in its favor
	DropNewest                 // it is dropped
)

// String returns the policy's name.
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

// WithQueue sets how many messages a subscription keeps until they are taken, 1 to
// 16777216. The default is 256.
func WithQueue(n int) SubscribeOption { return func(o *subscribeOptions) { o.queue = n } }

// WithOverflow sets what happens when the queue is full. The default is DropOldest.
func WithOverflow(policy Overflow) SubscribeOption {
	return func(o *subscribeOptions) { o.overflow = policy }
}

// maxQueue is the most messages that a subscription can keep.
const maxQueue = 1 << 24

func (o subscribeOptions) check() error {
	if o.queue < 1 || o.queue > maxQueue {
		return fmt.Errorf("%w: WithQueue is %d, must be 1 to %d", ErrConfig, o.queue, maxQueue)
	}
	if o.overflow > DropNewest {
		return fmt.Errorf("%w: WithOverflow: there is no %v", ErrConfig, o.overflow)
	}
	return nil
}

// Subscribe subscribes to a channel, which lives on the server that a key of that name
// would. It returns when the server has confirmed it: what is published from then on
// arrives, in the order of its server, until the subscription or the client is closed.
// ctx bounds the subscribing only. The channel [AllChannel] is on every server, and so is
// [OwnChannel]; then all of them must confirm.
//
// Subscriptions have a connection of their own to each server that they need, made by the
// first and closed with the last of them. Those to the same channel share one on the
// wire. After a loss the connection is made again, after pauses (Config.RetryPause), and
// all subscriptions with it: a [Message] with Gap says so to each.
//
// A subscriber who does not keep up loses messages when its queue is full, which
// Dropped counts, and holds up nobody. A server holds back at most 1024
// messages for a connection, and drops further ones without a trace (H4 in
// docs/protocol.md): these are not counted.
//
// Errors are a [*RequestError], which matches [ErrConnect] where the server can't be
// reached, [ErrUnavailable] where this is known already, [ErrRefused] where it answers
// failure; [ErrConfig] for options; [codec.ErrTooLarge] for a channel of more than 255
// bytes.
func (c *Client[T]) Subscribe(ctx context.Context, channel string, opts ...SubscribeOption) (*Subscription, error) {
	o := subscribeOptions{queue: 256}
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if _, err := (codec.Subscribe{Channel: []byte(channel)}).AppendBinary(nil); err != nil {
		return nil, err
	}
	hubs := c.hubs
	if channel != AllChannel && channel != OwnChannel {
		i := c.router.pick(channel)
		hubs = hubs[i : i+1]
	}
	if err := ctx.Err(); err != nil {
		return nil, hubs[0].refused(false, err)
	}
	sub := newSubscription(o, &c.subscriptions)
	seats := make([]*seat[T], 0, len(hubs))
	for _, h := range hubs {
		s, err := h.join(sub, channel)
		if err != nil {
			sub.Close()
			return nil, h.refused(false, err)
		}
		seats = append(seats, s)
		sub.places = append(sub.places, s)
	}
	for _, s := range seats {
		if err := s.wait(ctx); err != nil {
			sub.Close()
			return nil, s.hub.refused(s.wasSent(), err)
		}
	}
	return sub, nil
}
