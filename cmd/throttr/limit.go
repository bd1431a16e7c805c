package main

import (
	"context"
	"flag"
	"time"
)

var hitCommand = command{
	name: "hit", args: "-scale 1m -limit 100 key...",
	short: "count a hit on each key's window, and tell whether it is within the limit",
	long: `A window opens with the key's first hit and ends one scale later.
Exit status 1: a hit was denied.

This program ends before the window does, so that the window's record stays on the server
until its TTL is over: a long-running program removes it sooner. End a window with "reset".
`,
	examples: []string{"throttr hit -scale 1m -limit 100 user:42", "throttr hit -scale 1h -limit 5000 -n 10 -json user:42 user:43"},
	define: func(f *flag.FlagSet) reader {
		scale := durationFlag(f, "scale", "the `length` of a window, such as 1m")
		limit := f.Uint64("limit", 0, "how many `hits` a window allows")
		n := f.Uint64("n", 1, "how many `hits` this one counts for; 0 only asks")
		return func(keys []string) (task, error) {
			if err := needFlags(f, "scale", "limit"); err != nil {
				return nil, err
			}
			if err := needKeys(keys); err != nil {
				return nil, err
			}
			return withClient(func(ctx context.Context, e *env, c client) (bool, error) {
				return hit(ctx, e.out, c, keys, *scale, *limit, *n)
			}), nil
		}
	},
}

// hitRecord is the decision on a hit in JSON.
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
	limiter := c.limiter()
	out.table("key", "decision", ">count", ">limit", ">remaining", ">retry after", "window ends")
	all := true
	for _, key := range keys {
		res, err := limiter.HitN(ctx, key, scale, limit, n)
		if err != nil {
			return false, err
		}
		decision, retry := "allowed", "-"
		if !res.Allowed {
			all, decision, retry = false, "denied", span(res.RetryAfter)
		}
		out.add(hitRecord{keyOf(key), res.Allowed, res.Count, res.Limit, res.Remaining, res.RetryAfter.Seconds(), res.ResetAt.UTC()},
			quoted(key), decision, number(res.Count), number(res.Limit), number(res.Remaining), retry, instant(res.ResetAt))
	}
	return all, nil
}

var resetCommand = command{
	name: "reset", args: "-scale 1m key...",
	short: "end each key's window, so that the next hit opens another",
	long: `The scale is that of the hits: the same key with another scale has another window.
Exit status 1: a key has no window.
`,
	examples: []string{"throttr reset -scale 1m user:42"},
	define: func(f *flag.FlagSet) reader {
		scale := durationFlag(f, "scale", "the `length` of the window, such as 1m")
		return func(keys []string) (task, error) {
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
