package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
)

var subscribeCommand = command{
	name: "subscribe", args: "channel",
	short: "print the messages of a channel, until it is interrupted",
	long: `The channel * is on every server, and what is published on it reaches all connections.
Where the connection was lost meanwhile, a line says that messages can be missing.
`,
	examples: []string{"throttr subscribe news", "throttr subscribe -n 1 -json news"},
	timeout:  "the `time` that connecting and subscribing may take",
	define: func(f *flag.FlagSet) reader {
		n := f.Int("n", 0, "end after so many `messages`; 0: never")
		return func(args []string) (task, error) {
			if err := needArgs(args, "channel"); err != nil {
				return nil, err
			}
			if *n < 0 {
				return nil, fmt.Errorf("-n %d is less than 0", *n)
			}
			return func(ctx context.Context, e *env) (bool, error) {
				return subscribe(ctx, e, args[0], *n)
			}, nil
		}
	},
}

// messageRecord is a message in JSON. A payload that is not text has its bytes beside it; a
// gap has none.
type messageRecord struct {
	Time   time.Time `json:"time"`
	Server string    `json:"server"`
	named
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	Gap           bool    `json:"gap"`
}

// subscribe prints n messages, or, if n is 0, all until ctx ends.
func subscribe(ctx context.Context, e *env, channel string, n int) (bool, error) {
	var c client
	var sub *throttr.Subscription
	_, err := bounded(func(ctx context.Context, e *env) (_ bool, err error) {
		if c, err = connect(ctx, e.servers); err != nil {
			return false, err
		}
		sub, err = c.Subscribe(ctx, channel)
		return true, err
	})(ctx, e)
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		return false, err
	}
	fmt.Fprintf(e.stderr, "subscribed to %s\n", quoted(channel))
	e.out.entries(c, "time", "channel", "payload")
	for printed := 0; n == 0 || printed < n; {
		m, err := sub.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return false, err
		}
		e.out.message(m, time.Now())
		if err := e.out.flush(); err != nil {
			return false, err
		}
		if !m.Gap {
			printed++
		}
	}
	if dropped := sub.Dropped(); dropped > 0 {
		fmt.Fprintf(e.stderr, "%d messages came faster than they were printed, and are missing\n", dropped)
	}
	return true, nil
}

func (o *output) message(m throttr.Message, now time.Time) {
	if m.Gap {
		o.entry(m.Server, messageRecord{Time: now.UTC(), Server: m.Server, named: nameOf(m.Channel), Gap: true},
			instant(now), quoted(m.Channel), "(the connection was lost: messages can be missing)")
		return
	}
	payload := string(m.Payload)
	o.entry(m.Server, messageRecord{now.UTC(), m.Server, nameOf(m.Channel), &payload, unlessText(payload), false},
		instant(now), quoted(m.Channel), quoted(payload))
}
