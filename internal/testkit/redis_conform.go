package testkit

import (
	"context"
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/rediswindow"
)

// Conform runs the conformance suite for all algorithms. The function returns two backends on one store, with
// clients of their own. Each test has a prefix of its own.
func Conform(t *testing.T, backends func(opts ...rediswindow.Option) (one, second *rediswindow.Backend)) {
	for _, a := range limits.Algorithms {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				s := backendtest.Subject{Algorithm: a, Clock: clock}
				s.Backend, s.Second = backends(rediswindow.WithPrefix(t.Name()+":"), rediswindow.WithClock(clock.Now))
				return s
			})
		})
	}
}

// Subscribes requires of a [rediswindow.Subscriber] that it confirms each subscription before it passes on messages,
// also the one after its connection has ended.
func Subscribes(t *testing.T, s *Redis, client rediswindow.Subscriber) {
	ctx, cancel := context.WithCancel(t.Context())
	messages, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil {
			err = client.Subscribe(ctx, "channel", func(m string) { messages <- m })
		}
		ended <- err
	}()
	for _, sent := range []string{"one", "two"} {
		got := <-messages
		Expect(t, got == "", "%q is received, and not that there is a subscription", got)
		s.Must(t, "PUBLISH", "channel", sent)
		got = <-messages
		Expect(t, got == sent, "%q is received", got)
		s.Must(t, "CLIENT", "KILL", "TYPE", "pubsub")
	}
	cancel()
	Expect(t, <-ended != nil, "a subscription ends without an error")
}
