package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/pubsub"
)

func subscribeCommand(e *env) *cobra.Command {
	var n uint
	cmd := &cobra.Command{
		Use:   "subscribe channel",
		Short: "print the messages of a channel, until it is interrupted",
		Long: `The channel * is on every server. A message to it reaches all connections of the
server. If the connection to the server was lost for a time, a line says that
messages can be missing. --timeout bounds the time to connect and subscribe.`,
		Example: `  throttr subscribe news
  throttr subscribe -n 1 --json news`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return subscribe(cmd.Context(), e, args[0], n)
		},
	}
	cmd.Flags().UintVarP(&n, "messages", "n", 0, "end after this number of `messages`; 0: never")
	return cmd
}

// messageJSON is the JSON of a message. PayloadBase64 is there if the payload is not UTF-8. A
// gap has no payload.
type messageJSON struct {
	Time   time.Time `json:"time"`
	Server string    `json:"server"`
	named
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	Gap           bool    `json:"gap"`
}

// subscribe prints n messages, or, if n is 0, all until ctx ends.
func subscribe(ctx context.Context, e *env, channel string, n uint) error {
	var c client
	var sub *pubsub.Subscription
	err := withTimeout(ctx, e.timeout, func(ctx context.Context) (_ bool, err error) {
		if c, err = connect(ctx, e.globals); err != nil {
			return false, err
		}
		sub, err = c.Subscribe(ctx, channel)
		return true, err
	})
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stderr, "subscribed to %s\n", quoted(channel))
	several := len(c.Stats().Servers) > 1
	columns := []string{"time", "channel", "payload"}
	if several {
		columns = append([]string{"server"}, columns...)
	}
	e.out.table(columns...)
	for printed := uint(0); n == 0 || printed < n; {
		m, err := sub.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		e.out.message(m, time.Now(), several)
		if err := e.out.flush(); err != nil {
			return err
		}
		if !m.Gap {
			printed++
		}
	}
	if dropped := sub.Dropped(); dropped > 0 {
		fmt.Fprintf(e.stderr, "%d messages are missing: they came faster than they were printed\n", dropped)
	}
	return nil
}

// message prints a message, with its server if there are several.
func (o *output) message(m pubsub.Message, now time.Time, several bool) {
	line := messageJSON{Time: now.UTC(), Server: m.Server, named: nameOf(m.Channel), Gap: m.Gap}
	text := "(the connection was lost: messages can be missing)"
	if !m.Gap {
		payload := string(m.Payload)
		line.Payload, line.PayloadBase64, text = &payload, unlessText(payload), quoted(payload)
	}
	fields := []string{formatTime(now), quoted(m.Channel), text}
	if several {
		fields = append([]string{m.Server}, fields...)
	}
	o.add(line, fields...)
}
