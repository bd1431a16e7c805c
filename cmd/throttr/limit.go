package main

import (
	"context"
	"flag"
	"time"
)

var hitCommand = command{
	name: "hit", args: "-scale 1m -limit 100 key...",
	short: "count a hit on each key's window, and print the decision",
	long: `The first hit of a key opens a window, which ends one scale later.

This program ends before the window does. The record of the window then stays on the server
until its TTL ends; a program that keeps its client removes it sooner. To remove it, reset the
window.
`,
	no:       "a hit was denied",
	examples: []string{"throttr hit -scale 1m -limit 100 user:42", "throttr hit -scale 1h -limit 5000 -n 10 -json user:42 user:43"},
	define: func(f *flag.FlagSet) parser {
		scale := durationFlag(f, "scale", "the `scale`, the length of a window, such as 1m")
		var limit, n uint64
		countVar(f, &limit, "limit", 0, "the number of `hits` that a window allows")
		countVar(f, &n, "n", 1, "the number of `hits` to count; 0 reads the window only")
		return func(keys []string) (action, error) {
			if err := needFlags(f, "scale", "limit"); err != nil {
				return nil, err
			}
			if err := needKeys(keys); err != nil {
				return nil, err
			}
			return withClient(func(ctx context.Context, e *env, c client) (bool, error) {
				return hit(ctx, e.out, c, keys, *scale, limit, n)
			}), nil
		}
	},
}

// hitRecord is the JSON of a hit.
type hitRecord struct {
	keyed
	Allowed           bool      `json:"allowed"`
	Count             uint64    `json:"count"`
	Limit             uint64    `json:"limit"`
	Remaining         uint64    `json:"remaining"`
	RetryAfterSeconds float64   `json:"retry_after_seconds"`
	ResetAt           time.Time `json:"reset_at"`
}

func hit(ctx context.Context, out *output, c client, keys []string, scale time.Duration, limit, n uint64) (bool, error) {
	out.table("key", "decision", ">count", ">limit", ">remaining", ">window ends in")
	all := true
	for _, key := range keys {
		res, err := c.limiter().HitN(ctx, key, scale, limit, n)
		if err != nil {
			return false, err
		}
		decision := "allowed"
		if !res.Allowed {
			all, decision = false, "denied"
		}
		out.add(hitRecord{keyOf(key), res.Allowed, res.Count, res.Limit, res.Remaining, res.RetryAfter.Seconds(), res.ResetAt.UTC()},
			quoted(key), decision, number(res.Count), number(res.Limit), number(res.Remaining), formatDuration(res.ResetAfter))
	}
	return all, nil
}

var resetCommand = command{
	name: "reset", args: "-scale 1m key...",
	short: "end each key's window, so that the next hit opens a new one",
	long: `The scale must be the one of the hits: windows of different scales are independent.
`,
	no:       "a key has no window",
	examples: []string{"throttr reset -scale 1m user:42"},
	define: func(f *flag.FlagSet) parser {
		scale := durationFlag(f, "scale", "the `scale` of the windows, such as 1m")
		return func(keys []string) (action, error) {
			if err := needFlags(f, "scale"); err != nil {
				return nil, err
			}
			if err := needKeys(keys); err != nil {
				return nil, err
			}
			return eachKey(keys, "reset", "no window", func(ctx context.Context, c client, key string) (bool, error) {
				n, err := c.limiter().Delete(ctx, key, *scale)
				return n > 0, err
			}), nil
		}
	},
}
