package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/codec"
)

var insertCommand = command{
	name: "insert", args: "-ttl 1h key quota",
	short: "create a counter",
	long: `A real server can lock up when a record expires (H12 in docs/protocol.md). Choose a TTL that is
longer than the use of the record, and purge the record at the end of its use.
`,
	no:       "the key exists, or has expired in the last 10 s",
	examples: []string{"throttr insert -ttl 1h jobs 100"},
	define: func(f *flag.FlagSet) parser {
		ttl := durationFlag(f, "ttl", "the `time` until the counter expires, such as 1h")
		return func(args []string) (action, error) {
			if err := needFlags(f, "ttl"); err != nil {
				return nil, err
			}
			if err := needArgs(args, "key", "quota"); err != nil {
				return nil, err
			}
			quota, err := parseNumber("quota", args[1])
			if err != nil {
				return nil, err
			}
			return eachKey(args[:1], "inserted", "exists", func(ctx context.Context, c client, key string) (bool, error) {
				return c.insert(ctx, key, quota, *ttl)
			}), nil
		}
	},
}

// parseNumber parses a number of up to 8 bytes.
func parseNumber(what, s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a whole number of 0 or more, in 8 bytes", what, s)
	}
	return n, nil
}

// keyRecord is the JSON of what was done with a key.
type keyRecord struct {
	keyed
	OK     bool   `json:"ok"`
	Result string `json:"result"`
}

// eachKey returns an action that calls do with each key and prints one of two results.
func eachKey(keys []string, yes, no string, do func(ctx context.Context, c client, key string) (bool, error)) action {
	return withClient(func(ctx context.Context, e *env, c client) (bool, error) {
		e.out.table("", "")
		all := true
		for _, key := range keys {
			ok, err := do(ctx, c, key)
			if err != nil {
				return false, err
			}
			e.out.result(key, ok, yes, no)
			all = all && ok
		}
		return all, nil
	})
}

// result prints what was done with a key: yes if ok, and no otherwise.
func (o *output) result(key string, ok bool, yes, no string) {
	text := yes
	if !ok {
		text = no
	}
	o.add(keyRecord{keyOf(key), ok, text}, quoted(key), text)
}

var queryCommand = command{
	name: "query", args: "key...",
	short: "print counters",
	long: `The TTL is the time that remains, rounded down to the unit that the counter was made with. A
buffer appears as a counter of 0.
`,
	no:       "a key is not found",
	examples: []string{"throttr query jobs"},
	define: func(f *flag.FlagSet) parser {
		return func(keys []string) (action, error) {
			if err := needKeys(keys); err != nil {
				return nil, err
			}
			return withClient(func(ctx context.Context, e *env, c client) (bool, error) {
				return query(ctx, e.out, c, keys)
			}), nil
		}
	},
}

// counterRecord is the JSON of a counter. Quota and TTL are missing if it is not found.
type counterRecord struct {
	keyed
	Found      bool     `json:"found"`
	Quota      *uint64  `json:"quota,omitempty"`
	TTLSeconds *float64 `json:"ttl_seconds,omitempty"`
}

func query(ctx context.Context, out *output, c client, keys []string) (bool, error) {
	out.table("key", ">quota", ">ttl")
	all := true
	for _, key := range keys {
		a, ok, err := c.query(ctx, key)
		if err != nil {
			return false, err
		}
		if !ok {
			all = false
			out.add(counterRecord{keyed: keyOf(key)}, quoted(key), "-", "not found")
			continue
		}
		ttl := a.ttl.Seconds()
		out.add(counterRecord{keyOf(key), true, &a.quota, &ttl}, quoted(key), number(a.quota), formatDuration(a.ttl))
	}
	return all, nil
}

var updateCommand = command{
	name: "update", args: "key +3|-3|=3",
	short: "change a counter's quota, or a record's TTL",
	long: `+3 adds, -3 subtracts, and =3 sets. A quota beyond the largest value silently wraps around to
zero.

With -ttl, the change is a duration, such as +30s, in whole units of the record's TTL; =1h
counts from now.
`,
	no:       "the key is not found, or the quota would go below zero",
	examples: []string{"throttr update jobs -3", "throttr update jobs =50", "throttr update -ttl jobs +30s"},
	define: func(f *flag.FlagSet) parser {
		ttl := f.Bool("ttl", false, "change the TTL of a counter or buffer")
		return func(args []string) (action, error) {
			if err := needArgs(args, "key", "change"); err != nil {
				return nil, err
			}
			change, amount, err := parseChange(args[1])
			if err != nil {
				return nil, err
			}
			if *ttl {
				d, err := parseDuration(amount)
				if err != nil {
					return nil, fmt.Errorf("TTL %q: %w", amount, err)
				}
				return updateTTL(args[0], change, d), nil
			}
			n, err := parseNumber("value", amount)
			if err != nil {
				return nil, err
			}
			return updateQuota(args[0], change, n), nil
		}
	},
}

// parseChange splits "+3" into the change and its amount.
func parseChange(s string) (change codec.Change, amount string, err error) {
	changes := map[byte]codec.Change{'=': codec.Patch, '+': codec.Increase, '-': codec.Decrease}
	if len(s) > 1 {
		if change, ok := changes[s[0]]; ok && s[1] >= '0' && s[1] <= '9' {
			return change, s[1:], nil
		}
	}
	return 0, "", fmt.Errorf("change %q is not of the form +3, -3 or =3", s)
}

func updateQuota(key string, change codec.Change, n uint64) action {
	return withClient(func(ctx context.Context, e *env, c client) (bool, error) {
		ok, err := c.update(ctx, key, codec.Quota, change, n)
		if err != nil {
			return false, err
		}
		no := "not found"
		if !ok { // the response has no reason
			a, found, err := c.query(ctx, key)
			if err != nil {
				return false, err
			}
			switch {
			case found && change == codec.Decrease && a.quota < n:
				no = "would go below zero"
			case found:
				no = "is a buffer"
			}
		}
		e.out.table("", "")
		e.out.result(key, ok, "updated", no)
		return ok, nil
	})
}

func updateTTL(key string, change codec.Change, d time.Duration) action {
	return withClient(func(ctx context.Context, e *env, c client) (bool, error) {
		e.out.table("", "")
		a, ok, err := c.query(ctx, key)
		if err != nil {
			return false, err
		}
		if ok {
			unit := a.unit.Duration()
			if d%unit != 0 {
				return false, fmt.Errorf("TTL %v is not a whole number of %v, the unit that %s was made with", d, a.unit, quoted(key))
			}
			if ok, err = c.update(ctx, key, codec.TimeToLive, change, uint64(d/unit)); err != nil {
				return false, err
			}
		}
		e.out.result(key, ok, "updated", "not found")
		return ok, nil
	})
}

var purgeCommand = command{
	name: "purge", args: "key...",
	short:    "delete counters and buffers",
	no:       "a key is not found",
	examples: []string{"throttr purge jobs greeting"},
	define: func(f *flag.FlagSet) parser {
		return func(keys []string) (action, error) {
			if err := needKeys(keys); err != nil {
				return nil, err
			}
			return eachKey(keys, "purged", "not found", func(ctx context.Context, c client, key string) (bool, error) {
				return c.Purge(ctx, key)
			}), nil
		}
	},
}
