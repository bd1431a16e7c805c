package main

import (
	"context"
	"flag"
	"fmt"
)

var setCommand = command{
	name: "set", args: "-ttl 1m key value",
	short: "store a value",
	long: `A value of - is read from standard input, to its end and byte for byte. It replaces an earlier
value. Key and value together have up to some 8 KB, and less on servers of small value sizes.
`,
	no:       "the key is a counter, or has expired in the last 10 s",
	examples: []string{"throttr set -ttl 1m greeting hello", "printf 'hello, world' | throttr set -ttl 1m greeting -"},
	define: func(f *flag.FlagSet) parser {
		ttl := durationFlag(f, "ttl", "the `time` until the value expires, such as 1m")
		return func(args []string) (action, error) {
			if err := needFlags(f, "ttl"); err != nil {
				return nil, err
			}
			if err := needArgs(args, "key", "value"); err != nil {
				return nil, err
			}
			return func(ctx context.Context, e *env) (bool, error) {
				value, err := e.argument(args[1])
				if err != nil {
					return false, err
				}
				return eachKey(args[:1], "set", "is a counter, or has just expired", func(ctx context.Context, c client, key string) (bool, error) {
					return c.set(ctx, key, value, *ttl)
				})(ctx, e)
			}, nil
		}
	},
}

var getCommand = command{
	name: "get", args: "key...",
	short: "print values",
	long: `A counter appears as an empty value.
`,
	no:       "a key is not found",
	examples: []string{"throttr get greeting", "throttr get -raw greeting"},
	define: func(f *flag.FlagSet) parser {
		raw := f.Bool("raw", false, "print only the value of one key, byte for byte")
		return func(keys []string) (action, error) {
			if err := needKeys(keys); err != nil {
				return nil, err
			}
			if *raw {
				if err := needArgs(keys, "key"); err != nil {
					return nil, fmt.Errorf("-raw: %w", err)
				}
			}
			return withClient(func(ctx context.Context, e *env, c client) (bool, error) {
				if *raw {
					return getRaw(ctx, e, c, keys[0])
				}
				return get(ctx, e.out, c, keys)
			}), nil
		}
	},
}

// bufferRecord is the JSON of a buffer. Value and TTL are missing if it is not found.
// ValueBase64 is there if the value is not UTF-8.
type bufferRecord struct {
	keyed
	Found       bool     `json:"found"`
	Value       *string  `json:"value,omitempty"`
	ValueBase64 []byte   `json:"value_base64,omitempty"`
	TTLSeconds  *float64 `json:"ttl_seconds,omitempty"`
}

func get(ctx context.Context, out *output, c client, keys []string) (bool, error) {
	out.table("key", ">bytes", ">ttl", "value")
	all := true
	for _, key := range keys {
		b, ok, err := c.get(ctx, key)
		if err != nil {
			return false, err
		}
		if !ok {
			all = false
			out.add(bufferRecord{keyed: keyOf(key)}, quoted(key), "-", "not found", "")
			continue
		}
		value, ttl := string(b.value), b.ttl.Seconds()
		out.add(bufferRecord{keyOf(key), true, &value, unlessText(value), &ttl},
			quoted(key), number(len(value)), formatDuration(b.ttl), quoted(value))
	}
	return all, nil
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
