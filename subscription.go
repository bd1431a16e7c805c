package throttr

import (
	"context"
	"iter"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/pubsub"
)

// Message is what a [Subscription] delivers: a published message, or a gap.
type Message struct {
	Server  string // the server that sent it, as in Config.Servers
	Channel string // the channel; for OwnChannel, the connection's id in 32 hexadecimal digits
	Payload []byte // a copy that belongs to the receiver; nil for a gap
	// Gap says that messages may be missing: the connection to Server was lost, and the
	// subscription is active again. A gap comes before any message of the new connection.
	Gap bool
}

// Subscription is a queue of the messages of one channel. [Client.Subscribe] makes one. It
// is safe for concurrent use. Each message goes to one caller of Next.
type Subscription struct {
	sub *pubsub.Subscription
}

// Next removes and returns the oldest message of the queue. If the queue is empty, Next
// waits for a message.
//
// The error is that of ctx, or [ErrClosed] if the subscription or its client is closed and
// the queue is empty.
func (s *Subscription) Next(ctx context.Context) (Message, error) {
	m, err := s.sub.Next(ctx)
	return Message(m), err
}

// Messages returns an iterator that calls Next until Next fails. The last pair holds that
// error: the error of ctx, or [ErrClosed].
func (s *Subscription) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for m, err := range s.sub.Messages(ctx) {
			if !yield(Message(m), err) {
				return
			}
		}
	}
}

// Dropped returns how many messages were dropped because the queue was full. The count is
// exact. It does not include messages that were published while the connection was lost.
func (s *Subscription) Dropped() uint64 { return s.sub.Dropped() }

// ConnID returns the id of the connection on which server, an element of Config.Servers,
// delivers. Subscribers to [OwnChannel] receive what is published on that server on the
// channel with this name; the id's String method returns the name.
//
// ConnID returns false if the subscription does not use server, or if there is no
// connection at the moment. After a loss, the new connection has another id.
func (s *Subscription) ConnID(server string) (codec.ConnID, bool) { return s.sub.ConnID(server) }

// Close ends the subscription. Messages in its queue can still be read. If it was the
// client's last subscription to the channel, the client unsubscribes in the background.
// Close always returns nil.
func (s *Subscription) Close() error {
	s.sub.Close()
	return nil
}
