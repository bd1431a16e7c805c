package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/inspect"
)

func publishCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "publish channel payload",
		Short: "send a message to the subscribers of a channel",
		Long: `A payload of - is read from standard input, to its end and byte for byte. A
message to the channel * reaches every connection of its server.

Exit status 1: the channel has no subscriber.`,
		Example: `  throttr publish news hello
  printf 'hello, world' | throttr publish news -`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
				payload, err := e.argument(args[1])
				if err != nil {
					return false, err
				}
				ok, err := c.Publish(ctx, args[0], payload)
				if err != nil {
					return false, err
				}
				e.out.published(args[0], ok)
				return ok, nil
			})
		},
	}
}

// maxStdin is far more than a frame can carry.
const maxStdin = 1 << 20

// argument returns the bytes of an argument, or of standard input if it is "-".
func (e *env) argument(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	b, err := io.ReadAll(io.LimitReader(e.stdin, maxStdin))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return b, nil
}

// named is the JSON of a channel's name. ChannelBase64 is there if the name is not UTF-8.
type named struct {
	Channel       string `json:"channel"`
	ChannelBase64 []byte `json:"channel_base64,omitempty"`
}

func nameOf(channel string) named { return named{channel, unlessText(channel)} }

// publishJSON is the JSON of a message that was sent.
type publishJSON struct {
	named
	OK     bool   `json:"ok"`
	Result string `json:"result"`
}

func (o *output) published(channel string, ok bool) {
	result := "published"
	if !ok {
		result = "nobody is subscribed"
	}
	o.table("", "")
	o.add(publishJSON{nameOf(channel), ok, result}, quoted(channel), result)
}

func channelsCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "channels [channel...]",
		Short: "list channels with subscribers, or the subscribers of some",
		Long: `A server subscribes each connection to * and to its own id. Those of Go programs
unsubscribe, except for the one that subscriptions use.

Exit status 1: a channel has no subscriber.`,
		Example: `  throttr channels
  throttr channels news`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
				if len(names) == 0 {
					return channels(ctx, e, c)
				}
				return subscribers(ctx, e.out, c, names)
			})
		},
	}
}

// channelJSON is the JSON of a channel.
type channelJSON struct {
	Server string `json:"server"`
	named
	Connections uint64 `json:"connections"`
	ReadBytes   uint64 `json:"read_bytes"`
	WriteBytes  uint64 `json:"write_bytes"`
}

func channels(ctx context.Context, e *env, c client) (bool, error) {
	e.out.serverTables(c, ">connections", ">read bytes", ">write bytes", "channel")
	err := each(c.Channels(ctx), func(h inspect.Channel) {
		e.out.serverRow(h.Server, channelJSON{h.Server, nameOf(h.Name), h.Connections, h.ReadBytes, h.WriteBytes},
			number(h.Connections), number(h.ReadBytes), number(h.WriteBytes), quoted(h.Name))
	})
	return true, err
}

// subscriberJSON is the JSON of a subscriber. A channel without subscribers has one line
// that is not found.
type subscriberJSON struct {
	named
	Found bool `json:"found"`
	*subscriberFigures
}

type subscriberFigures struct {
	Server     string    `json:"server"`
	ID         string    `json:"id"`
	Since      time.Time `json:"since"`
	ReadBytes  uint64    `json:"read_bytes"`
	WriteBytes uint64    `json:"write_bytes"`
}

func subscribers(ctx context.Context, out *output, c client, names []string) (bool, error) {
	out.serverTables(c, "id", ">age", ">read bytes", ">write bytes", "channel")
	return forAll(names, func(name string) (bool, error) {
		subs, ok, err := c.Channel(ctx, name)
		for _, s := range subs {
			f := subscriberFigures{s.Server, s.ID.String(), s.Since, s.ReadBytes, s.WriteBytes}
			out.serverRow(s.Server, subscriberJSON{nameOf(name), true, &f},
				f.ID, formatAge(s.Since, time.Now()), number(s.ReadBytes), number(s.WriteBytes), quoted(name))
		}
		if !ok && err == nil {
			out.serverRow("-", subscriberJSON{named: nameOf(name)}, "nobody", "-", "-", "-", quoted(name))
		}
		return ok, err
	})
}
