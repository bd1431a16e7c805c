package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func setCommand(e *env) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "set --ttl 1m key value",
		Short: "store a value",
		Long: `A value of - is read from standard input, to its end and byte for byte. It
replaces an earlier value. Key and value together have up to some 8 KB, and less
on servers of small value sizes.

Exit status 1: the key is a counter, or has expired in the last 10 s.`,
		Example: `  throttr set --ttl 1m greeting hello
  printf 'hello, world' | throttr set --ttl 1m greeting -`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := e.argument(args[1])
			if err != nil {
				return err
			}
			return e.eachKey(cmd.Context(), args[:1], "set", "is a counter, or has just expired", func(ctx context.Context, c client, key string) (bool, error) {
				return c.set(ctx, key, value, ttl)
			})
		},
	}
	durationVar(cmd.Flags(), &ttl, "ttl", 0, "the `time` until the value expires, such as 1m")
	needFlags(cmd, "ttl")
	return cmd
}

func getCommand(e *env) *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "get key...",
		Short: "print values",
		Long: `A counter appears as an empty value.

Exit status 1: a key is not found.`,
		Example: `  throttr get greeting
  throttr get --raw greeting`,
		Args: func(cmd *cobra.Command, keys []string) error {
			if raw {
				return cobra.ExactArgs(1)(cmd, keys)
			}
			return cobra.MinimumNArgs(1)(cmd, keys)
		},
		RunE: func(cmd *cobra.Command, keys []string) error {
			return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
				if raw {
					return getRaw(ctx, e, c, keys[0])
				}
				return get(ctx, e.out, c, keys)
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print only the value of one key, byte for byte")
	return cmd
}

// bufferJSON is the JSON of a buffer. Value and TTL are missing if it is not found.
// ValueBase64 is there if the value is not UTF-8.
type bufferJSON struct {
	keyed
	Found       bool     `json:"found"`
	Value       *string  `json:"value,omitempty"`
	ValueBase64 []byte   `json:"value_base64,omitempty"`
	TTLSeconds  *float64 `json:"ttl_seconds,omitempty"`
}

func get(ctx context.Context, out *output, c client, keys []string) (bool, error) {
	out.table("key", ">bytes", ">ttl", "value")
	return forAll(keys, func(key string) (bool, error) {
		b, ok, err := c.get(ctx, key)
		if value, ttl := string(b.value), b.ttl.Seconds(); ok {
			out.add(bufferJSON{keyOf(key), true, &value, unlessText(value), &ttl},
				quoted(key), number(len(value)), formatDuration(b.ttl), quoted(value))
		} else if err == nil {
			out.add(bufferJSON{keyed: keyOf(key)}, quoted(key), "-", "not found", "")
		}
		return ok, err
	})
}

// getRaw prints a value byte for byte.
func getRaw(ctx context.Context, e *env, c client, key string) (bool, error) {
	b, ok, err := c.get(ctx, key)
	if err != nil || !ok {
		return false, err
	}
	_, err = e.out.w.Write(b.value)
	return true, err
}
