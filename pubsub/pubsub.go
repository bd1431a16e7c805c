// Package pubsub has what a subscription of a client of package throttr delivers, and its options.
//
//	sub, err := client.Subscribe(ctx, "news", pubsub.WithQueue(1024))
//	…
//	for m, err := range sub.Messages(ctx) {
package pubsub

import (
	"context"
	"fmt"
	"iter"

	"github.com/throttr-go/throttr/internal/pubsub"
)

// All, "*", is the channel that every connection is subscribed to: a message on it reaches all
// connections to the server on which it was published. A subscription to it covers all servers of
// the client.
const All = pubsub.All

// ErrRefused says that a server responded to a SUBSCRIBE with failure. Client.Subscribe returns errors that match it.
var ErrRefused = pubsub.ErrRefused

// Overflow says which message a subscription drops if its queue is full.
type Overflow uint8

const (
	DropOldest Overflow = iota // the oldest message of the queue
	DropNewest                 // the message that has just arrived
)

// String returns the name of the policy, such as "drop oldest".
func (o Overflow) String() string {
	if o > DropNewest {
		return fmt.Sprintf("overflow %d", uint8(o))
	}
	return [...]string{"drop oldest", "drop newest"}[o]
}

// Option is an option of Client.Subscribe.
type Option func(*pubsub.SubscribeOptions)

// maxQueue is the largest number of messages that a subscription can hold.
const maxQueue = 1 << 24

// WithQueue sets how many messages a subscription holds until they are read. Default, and with 0: 256. It
// panics if n is negative or over 16777216.
func WithQueue(n int) Option {
	if n < 0 || n > maxQueue {
		panic(fmt.Sprintf("pubsub: WithQueue: %d is not 0 to %d", n, maxQueue))
	}
	return func(o *pubsub.SubscribeOptions) { o.Queue = n }
}

// WithOverflow sets which message is dropped if the queue is full. Default: [DropOldest]. It panics if
// policy is unknown.
func WithOverflow(policy Overflow) Option {
	if policy > DropNewest {
		panic("pubsub: WithOverflow: there is no " + policy.String())
	}
	return func(o *pubsub.SubscribeOptions) { o.DropNewest = policy == DropNewest }
}

// Message is what a [Subscription] delivers: a published message, or a gap. Its fields are Server, the server that sent
// it, as in Config.Servers; Channel; Payload, a copy that belongs to the receiver, nil for a gap; and Gap.
//
// Gap says that messages may be missing: the connection to Server was lost, and the subscription is active again. A gap
// comes before any message of the new connection. One can also follow messages that came before the subscription was
// confirmed, if others were missed until then.
type Message = pubsub.Message

// Subscription is a queue of the messages of one channel. Client.Subscribe makes one. It is safe for
// concurrent use. Each message goes to one caller of Next.
type Subscription struct {
	sub *pubsub.Subscription
}

// New is for package throttr, which makes subscriptions.
func New(sub *pubsub.Subscription) *Subscription { return &Subscription{sub} }

// Next removes and returns the oldest message of the queue. If the queue is empty, Next waits for a
// message.
//
// The error is that of ctx, or matches throttr.ErrClosed if the subscription or its client is closed and
// the queue is empty.
func (s *Subscription) Next(ctx context.Context) (Message, error) { return s.sub.Next(ctx) }

// Messages returns an iterator that calls Next until Next fails. The last pair holds that error.
func (s *Subscription) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for {
			m, err := s.Next(ctx)
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// Dropped returns how many messages were dropped because the queue was full. The count is exact. It does
// not include messages that were published while the connection was lost.
func (s *Subscription) Dropped() uint64 { return s.sub.Dropped() }

// Close ends the subscription. Messages in its queue can still be read. If it was the client's last
// subscription to the channel, the client unsubscribes in the background. Close always returns nil.
func (s *Subscription) Close() error {
	s.sub.Close()
	return nil
}
