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
	long: `The channel * is on every server. A message to it reaches all connections of the server. If the
connection to the server was lost for a time, a line says that messages can be missing.
`,
	examples: []string{"throttr subscribe news", "throttr subscribe -n 1 -json news"},
	timeout:  "the `time` that it may take to connect and subscribe",
	define: func(f *flag.FlagSet) parser {
		n := f.Int("n", 0, "end after this number of `messages`; 0: never")
		return func(args []string) (action, error) {
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

// messageRecord is the JSON of a message. PayloadBase64 is there if the payload is not UTF-8. A
// gap has no payload.
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
	_, err := withTimeout(func(ctx context.Context, e *env) (_ bool, err error) {
		if c, err = connect(ctx, e.globals); err != nil {
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
	several := len(c.Stats().Servers) > 1
	columns := []string{"time", "channel", "payload"}
	if several {
		columns = append([]string{"server"}, columns...)
	}
	e.out.table(columns...)
	for printed := 0; n == 0 || printed < n; {
		m, err := sub.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return false, err
		}
		e.out.message(m, time.Now(), several)
		if err := e.out.flush(); err != nil {
			return false, err
		}
		if !m.Gap {
			printed++
		}
	}
	if dropped := sub.Dropped(); dropped > 0 {
		fmt.Fprintf(e.stderr, "%d messages are missing: they came faster than they were printed\n", dropped)
	}
	return true, nil
}

// message prints a message, with its server if there are several.
func (o *output) message(m throttr.Message, now time.Time, several bool) {
	record := messageRecord{Time: now.UTC(), Server: m.Server, named: nameOf(m.Channel), Gap: m.Gap}
	text := "(the connection was lost: messages can be missing)"
	if !m.Gap {
		payload := string(m.Payload)
		record.Payload, record.PayloadBase64, text = &payload, unlessText(payload), quoted(payload)
	}
	fields := []string{formatTime(now), quoted(m.Channel), text}
	if several {
		fields = append([]string{m.Server}, fields...)
	}
	o.add(record, fields...)
}
