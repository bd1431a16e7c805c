package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/throttr-go/throttr/pubsub"
)

func publish(e *env, _ *flags) action {
	return func(ctx context.Context, args []string) (bool, error) {
		payload, err := e.argument(args[1])
		if err != nil {
			return false, err
		}
		return e.each(ctx, args[:1], "published", "nobody is subscribed",
			func(ctx context.Context, c client, channel string) (bool, error) {
				return c.Publish(ctx, channel, payload)
			})
	}
}

// message is the JSON of a message. PayloadBase64 is there if the payload is not UTF-8. A gap has no payload.
type message struct {
	Time          time.Time `json:"time"`
	Server        string    `json:"server"`
	Channel       string    `json:"channel"`
	Payload       *string   `json:"payload,omitempty"`
	PayloadBase64 []byte    `json:"payload_base64,omitempty"`
	Gap           bool      `json:"gap"`
}

func subscribe(e *env, f *flags) action {
	n := uint64(0)
	number(f, &n, "n", 0, math.MaxUint64, "end after so `many` messages; 0: never")
	return func(ctx context.Context, args []string) (bool, error) {
		c, err := within(ctx, e.timeout, e.connect)
		if err != nil {
			return false, err
		}
		defer c.Close()
		sub, err := within(ctx, e.timeout, func(ctx context.Context) (*pubsub.Subscription, error) {
			return c.Subscribe(ctx, args[0])
		})
		if err != nil {
			return false, err
		}
		fmt.Fprintf(e.stderr, "subscribed to %s\n", quoted(args[0]))
		return true, e.messages(ctx, sub, n)
	}
}

// messages prints n messages, or, if n is 0, all until ctx ends.
func (e *env) messages(ctx context.Context, sub *pubsub.Subscription, n uint64) error {
	e.out.columns("time", "server", "channel", "payload")
	for printed := uint64(0); n == 0 || printed < n; {
		m, err := sub.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		now := time.Now()
		line := message{Time: now.UTC(), Server: m.Server, Channel: m.Channel, Gap: m.Gap}
		text := "(the connection was lost: messages can be missing)"
		if !m.Gap {
			payload := string(m.Payload)
			line.Payload, line.PayloadBase64 = &payload, unlessText(payload)
			text = quoted(payload)
			printed++
		}
		e.out.add(line, formatTime(now), m.Server, shown(m.Channel), text)
		if err := e.out.flush(); err != nil {
			return err
		}
	}
	if dropped := sub.Dropped(); dropped > 0 {
		fmt.Fprintf(e.stderr, "%d messages are missing: they came faster than they were printed\n", dropped)
	}
	return nil
}
