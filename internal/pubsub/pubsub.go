// Package pubsub keeps the subscriptions of a client.
//
// A [Manager] has the subscriptions of one server. They share one connection, which carries
// no other requests. The manager makes it for the first subscription, makes a new one if it
// is lost, and closes it after the last subscription.
//
// A [Subscription] is a bounded queue of the messages of one channel. [Subscribe] makes one,
// with one manager or with several: a channel that exists on every server needs them all.
//
// The parts and their files:
//
//   - pubsub.go: Subscribe, which begins a subscription;
//   - manager.go: which channels there are, and who receives an EVENT;
//   - connection.go: the goroutine that keeps the connection, and the server up to date;
//   - subscription.go: what a reader of messages sees;
//   - queue.go: which messages are kept and which are dropped.
//
// # Guarantees
//
//   - A connection is subscribed to a channel at most once, however many subscribers the
//     channel has (H10). It never subscribes to "*" or to its own id: the server has done
//     so already (H8).
//   - Subscribers receive the messages of one server in the order in which they arrive.
//   - A subscriber that was confirmed before a connection was lost receives a Gap before
//     any message of the new connection.
//   - A slow subscriber delays nobody. The messages that its queue drops are counted.
//   - At most 64 requests are outstanding at a time. A response that the server has dropped
//     (H4) ends the connection before another response can be taken for it.
//   - No goroutine is left when [Manager.Close] returns.
package pubsub

import (
	"cmp"
	"context"
	"errors"
)

// All is the channel that every connection is subscribed to.
const All = "*"

// ErrRefused says that a server answered a SUBSCRIBE with failure.
var ErrRefused = errors.New("throttr: the server refuses the subscription")

// SubscribeOptions are the options of a subscription.
type SubscribeOptions struct {
	Queue      int  // how many messages it holds; 0: 256
	DropNewest bool // if it is full, a new message is dropped, and not the oldest one
}

const defaultQueue = 256

// Failure is why Subscribe has failed.
type Failure struct {
	Server string // that failed
	Sent   bool   // it may have received a SUBSCRIBE
	// Err is that of ctx, an error of package conn, or one that matches [ErrRefused], window.ErrUnavailable,
	// dial.ErrConnect or window.ErrClosed.
	Err error
}

// Subscribe subscribes to a channel on the servers of all managers, of which there is at
// least one. It returns when every server has confirmed. ctx bounds only this call.
//
// If Subscribe fails, there is a Failure.
func Subscribe(ctx context.Context, managers []*Manager, channel string, o SubscribeOptions,
	totals *Totals) (*Subscription, *Failure) {
	if err := ctx.Err(); err != nil {
		return nil, &Failure{Server: managers[0].o.Server, Err: err}
	}
	s := newSubscription(queue{limit: cmp.Or(o.Queue, defaultQueue), dropNewest: o.DropNewest}, totals)
	for _, m := range managers {
		s.subscribers = append(s.subscribers, m.subscribe(s, channel))
	}
	for i, one := range s.subscribers {
		if sent, err := one.wait(ctx); err != nil {
			s.Close()
			return nil, &Failure{managers[i].o.Server, sent, err}
		}
	}
	return s, nil
}
