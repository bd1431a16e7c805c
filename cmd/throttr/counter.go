package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/codec"
)

func insertCommand(e *env) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "insert --ttl 1h key quota",
		Short: "create a counter",
		Long: `A real server can lock up when a record expires: see H12 in
docs/internals/protocol.md. Choose a TTL that is longer than the use of the
record, and purge the record at the end of its use.

Exit status 1: the key exists, or has expired in the last 10 s.`,
		Example: "  throttr insert --ttl 1h jobs 100",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			quota, err := parseNumber("quota", args[1])
			if err != nil {
				return err
			}
			return e.eachKey(cmd.Context(), args[:1], "inserted", "exists", func(ctx context.Context, c client, key string) (bool, error) {
				return c.insert(ctx, key, quota, ttl)
			})
		},
	}
	durationVar(cmd.Flags(), &ttl, "ttl", 0, "the `time` until the counter expires, such as 1h")
	needFlags(cmd, "ttl")
	return cmd
}

// parseNumber parses a number of up to 8 bytes.
func parseNumber(what, s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a whole number of 0 or more, in 8 bytes", what, s)
	}
	return n, nil
}

// keyJSON is the JSON of what was done with a key.
type keyJSON struct {
	keyed
	OK     bool   `json:"ok"`
	Result string `json:"result"`
}

// eachKey connects, calls do with each key, and prints one of two results.
func (e *env) eachKey(ctx context.Context, keys []string, yes, no string, do func(ctx context.Context, c client, key string) (bool, error)) error {
	return e.withClient(ctx, func(ctx context.Context, c client) (bool, error) {
		return e.each(keys, yes, no, func(key string) (bool, error) { return do(ctx, c, key) })
	})
}

// each calls do with each key, and prints one of two results.
func (e *env) each(keys []string, yes, no string, do func(key string) (bool, error)) (all bool, err error) {
	e.out.table("", "")
	return forAll(keys, func(key string) (bool, error) {
		ok, err := do(key)
		if err == nil {
			e.out.result(key, ok, yes, no)
		}
		return ok, err
	})
}

// forAll calls do with each key until one fails, and reports whether do has returned true for all.
func forAll[K any](keys []K, do func(K) (bool, error)) (all bool, err error) {
	all = true
	for _, key := range keys {
		ok, err := do(key)
		if err != nil {
			return false, err
		}
		all = all && ok
	}
	return all, nil
}

// result prints what was done with a key: yes if ok, and no otherwise.
func (o *output) result(key string, ok bool, yes, no string) {
	text := yes
	if !ok {
		text = no
	}
	o.add(keyJSON{keyOf(key), ok, text}, quoted(key), text)
}

func queryCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "query key...",
		Short: "print counters",
		Long: `The TTL is the time that remains, rounded down to the unit that the counter was
made with. A buffer appears as a counter of 0.

Exit status 1: a key is not found.`,
		Example: "  throttr query jobs",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
				return query(ctx, e.out, c, keys)
			})
		},
	}
}

// counterJSON is the JSON of a counter. Quota and TTL are missing if it is not found.
type counterJSON struct {
	keyed
	Found      bool     `json:"found"`
	Quota      *uint64  `json:"quota,omitempty"`
	TTLSeconds *float64 `json:"ttl_seconds,omitempty"`
}

func query(ctx context.Context, out *output, c client, keys []string) (bool, error) {
	out.table("key", ">quota", ">ttl")
	return forAll(keys, func(key string) (bool, error) {
		a, ok, err := c.query(ctx, key)
		if ttl := a.ttl.Seconds(); ok {
			out.add(counterJSON{keyOf(key), true, &a.quota, &ttl}, quoted(key), number(a.quota), formatDuration(a.ttl))
		} else if err == nil {
			out.add(counterJSON{keyed: keyOf(key)}, quoted(key), "-", "not found")
		}
		return ok, err
	})
}

func updateCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "update key +3|-3|=3",
		Short: "change a counter's quota, or a record's TTL",
		Long: `+3 adds, -3 subtracts, and =3 sets. A quota beyond the largest value silently
wraps around to zero. Flags go before the key.

With --ttl, the change is a duration, such as +30s, in whole units of the
record's TTL; =1h counts from now.

Exit status 1: the key is not found, or the quota would go below zero.`,
		Example: `  throttr update jobs -3
  throttr update jobs =50
  throttr update --ttl jobs +30s`,
		Args: cobra.ExactArgs(2),
	}
	cmd.Flags().SetInterspersed(false) // -3 is no flag
	ttl := cmd.Flags().Bool("ttl", false, "change the TTL of a counter or buffer")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, amount, err := parseChange(args[1])
		if err != nil {
			return err
		}
		update := updateQuota
		var n uint64
		if *ttl {
			update = updateTTL
			var d time.Duration
			if d, err = parseDuration(amount); err != nil {
				return fmt.Errorf("TTL %q: %w", amount, err)
			}
			n = uint64(d)
		} else if n, err = parseNumber("value", amount); err != nil {
			return err
		}
		return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
			return update(ctx, e.out, c, args[0], change, n)
		})
	}
	return cmd
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

func updateQuota(ctx context.Context, out *output, c client, key string, change codec.Change, n uint64) (bool, error) {
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
	out.table("", "")
	out.result(key, ok, "updated", no)
	return ok, nil
}

func updateTTL(ctx context.Context, out *output, c client, key string, change codec.Change, nanoseconds uint64) (bool, error) {
	out.table("", "")
	d := time.Duration(nanoseconds)
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
	out.result(key, ok, "updated", "not found")
	return ok, nil
}

func purgeCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "purge key...",
		Short:   "delete counters and buffers",
		Long:    "Exit status 1: a key is not found.",
		Example: "  throttr purge jobs greeting",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return e.eachKey(cmd.Context(), keys, "purged", "not found", func(ctx context.Context, c client, key string) (bool, error) {
				return c.Purge(ctx, key)
			})
		},
	}
}
