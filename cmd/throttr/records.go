package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// done is the JSON of what was done with a key.
type done struct {
	keyed
	OK     bool   `json:"ok"`
	Result string `json:"result"`
}

// each does something with each key, and prints one of two results.
func (e *env) each(ctx context.Context, keys []string, yes, no string, do onKey[client]) (bool, error) {
	toEach := forKeys(e, e.connect, nil, func(ctx context.Context, c client, key string) (bool, error) {
		ok, err := do(ctx, c, key)
		if err == nil {
			text := word(ok, yes, no)
			e.out.add(done{keyOf(key), ok, text}, shown(key), text)
		}
		return ok, err
	})
	return toEach(ctx, keys)
}

// withTTL defines the flag for a TTL, which is needed, and returns an action that has one.
func withTTL(f *flags, do func(ctx context.Context, args []string, ttl time.Duration) (bool, error)) action {
	var ttl time.Duration
	f.duration(&ttl, "ttl", "the `time` until the record expires, such as 1h")
	return func(ctx context.Context, args []string) (bool, error) {
		if ttl == 0 {
			return false, errors.New("--ttl is missing: the time until the record expires")
		}
		return do(ctx, args, ttl)
	}
}

func insert(e *env, f *flags) action {
	return withTTL(f, func(ctx context.Context, args []string, ttl time.Duration) (bool, error) {
		quota, err := parseNumber(args[1], 0, math.MaxUint64)
		if err != nil {
			return false, fmt.Errorf("quota %s: %w", args[1], err)
		}
		return e.each(ctx, args[:1], "inserted", "exists",
			func(ctx context.Context, c client, key string) (bool, error) {
				return c.insert(ctx, key, quota, ttl)
			})
	})
}

// record is the JSON of a counter or a buffer. All but Found is missing if it is not found. ValueBase64 is there if
// the value is not UTF-8.
type record struct {
	keyed
	Found       bool     `json:"found"`
	Quota       *uint64  `json:"quota,omitempty"`
	Value       *string  `json:"value,omitempty"`
	ValueBase64 []byte   `json:"value_base64,omitempty"`
	TTLSeconds  *float64 `json:"ttl_seconds,omitempty"`
}

func query(e *env, _ *flags) action {
	columns := []string{"key", "quota", "ttl"}
	return forKeys(e, e.connect, columns, func(ctx context.Context, c client, key string) (bool, error) {
		a, ok, err := c.query(ctx, key)
		if ttl := a.TTL.Duration().Seconds(); ok {
			e.out.add(record{keyed: keyOf(key), Found: true, Quota: &a.Quota, TTLSeconds: &ttl}, shown(key), a.Quota,
				a.TTL.Duration())
		} else if err == nil {
			e.out.add(record{keyed: keyOf(key)}, shown(key), "-", "not found")
		}
		return ok, err
	})
}

func update(e *env, f *flags) action {
	ttl := f.Bool("ttl", false, "change the TTL of a counter or buffer")
	return func(ctx context.Context, args []string) (bool, error) {
		change, n, err := parseChange(args[1], *ttl)
		if err != nil {
			return false, fmt.Errorf("change %s: %w", args[1], err)
		}
		no := "not found"
		if !*ttl {
			no += ", or a buffer" // the response has no reason
		}
		if !*ttl && change == codec.Decrease {
			no += ", or it would go below zero"
		}
		return e.each(ctx, args[:1], "updated", no, func(ctx context.Context, c client, key string) (bool, error) {
			if *ttl {
				return updateTTL(ctx, c, key, change, n)
			}
			return c.update(ctx, key, codec.Quota, change, n)
		})
	}
}

// parseChange splits "+3" into the change and its amount. That of a TTL is in nanoseconds.
func parseChange(text string, ttl bool) (change codec.Change, amount uint64, err error) {
	changes := map[byte]codec.Change{'=': codec.Patch, '+': codec.Increase, '-': codec.Decrease}
	if len(text) < 2 || changes[text[0]] == 0 && text[0] != '=' || text[1] < '0' || text[1] > '9' {
		return 0, 0, errors.New("must begin with +, - or =, as +3")
	}
	change = changes[text[0]]
	if !ttl {
		amount, err = parseNumber(text[1:], 0, math.MaxUint64)
		return change, amount, err
	}
	d, err := parseDuration(text[1:])
	return change, uint64(d), err
}

// updateTTL changes a TTL by nanoseconds. It returns false if there is no record.
func updateTTL(ctx context.Context, c client, key string, change codec.Change, nanoseconds uint64) (bool, error) {
	a, ok, err := c.query(ctx, key)
	if err != nil || !ok {
		return false, err
	}
	d, unit := time.Duration(nanoseconds), a.TTL.Unit.Duration()
	if d%unit != 0 {
		return false, fmt.Errorf("TTL %v is not a whole number of %v, the unit that %s was made with", d,
			a.TTL.Unit, quoted(key))
	}
	return c.update(ctx, key, codec.TimeToLive, change, uint64(d/unit))
}

func purge(e *env, _ *flags) action {
	return func(ctx context.Context, keys []string) (bool, error) {
		return e.each(ctx, keys, "purged", "not found", func(ctx context.Context, c client, key string) (bool, error) {
			return c.Purge(ctx, key)
		})
	}
}

func set(e *env, f *flags) action {
	return withTTL(f, func(ctx context.Context, args []string, ttl time.Duration) (bool, error) {
		value, err := e.argument(args[1])
		if err != nil {
			return false, err
		}
		return e.each(ctx, args[:1], "set", "is a counter, or has just expired",
			func(ctx context.Context, c client, key string) (bool, error) {
				return c.set(ctx, key, value, ttl)
			})
	})
}

// maxStdin is far more than a frame can carry.
const maxStdin = 1 << 20

// argument returns the bytes of an argument, or of standard input if it is "-".
func (e *env) argument(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	b, err := io.ReadAll(io.LimitReader(e.stdin, maxStdin+1))
	if len(b) > maxStdin {
		err = fmt.Errorf("longer than %d bytes", maxStdin)
	}
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return b, nil
}

func get(e *env, f *flags) action {
	raw := f.Bool("raw", false, "print only the values, byte for byte")
	columns := []string{"key", "bytes", "ttl", "value"}
	return forKeys(e, e.connect, columns, func(ctx context.Context, c client, key string) (bool, error) {
		b, ok, err := c.get(ctx, key)
		value, seconds := string(b.Value), b.TTL.Duration().Seconds()
		switch {
		case err != nil:
		case *raw:
			e.out.text(value)
		case ok:
			e.out.add(record{keyOf(key), true, nil, &value, unlessText(value), &seconds}, shown(key), len(value),
				b.TTL.Duration(), quoted(value))
		default:
			e.out.add(record{keyed: keyOf(key)}, shown(key), "-", "-", "not found")
		}
		return ok, err
	})
}
