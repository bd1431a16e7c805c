package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/throttr-go/throttr"
)

var takeCommand = command{
	name: "take", args: "-scale 1m -limit 100 key...",
	short: "take from the windows of all keys or of none, print the decision",
	long: `Unlike a hit, a take that is refused counts nothing. If one key refuses, nothing is taken from
the others. Hits and takes share a window.
`,
	no:       "a take was refused",
	examples: []string{"throttr take -scale 1m -limit 1000 -n 250 tokens:acme", "throttr take -scale 1h -limit 100 -json user:42 team:7"},
	define: func(f *flag.FlagSet) parser {
		t := takeFlags(f)
		return func(keys []string) (action, error) {
			if err := t.check(f, keys); err != nil {
				return nil, err
			}
			return withClient(func(ctx context.Context, e *env, c client) (bool, error) { return t.take(ctx, e.out, c, keys) }), nil
		}
	},
}

var waitCommand = command{
	name: "wait", args: "-scale 1m -limit 100 key...",
	short: "wait until a take of each key is granted, one key after the other",
	long: `For scripts that share a limit: the command after it runs when there is room. It waits for as long
as -timeout, which is for all keys together, and ends at once if that can't be enough.
`,
	no:       "it would take longer than -timeout",
	examples: []string{"throttr -timeout 10m wait -scale 1m -limit 100 provider && ./send-mail"},
	define: func(f *flag.FlagSet) parser {
		t := takeFlags(f)
		return func(keys []string) (action, error) {
			if err := t.check(f, keys); err != nil {
				return nil, err
			}
			return withClient(func(ctx context.Context, e *env, c client) (bool, error) { return t.wait(ctx, e.out, c, keys) }), nil
		}
	},
}

// takeArguments are the flags of take and wait.
type takeArguments struct {
	scale    *time.Duration
	limit, n uint64
}

func takeFlags(f *flag.FlagSet) *takeArguments {
	t := &takeArguments{scale: durationFlag(f, "scale", "the `scale`, the length of a window, such as 1m")}
	countVar(f, &t.limit, "limit", 0, "the `count` that a window may have")
	countVar(f, &t.n, "n", 1, "`how many` to take")
	return t
}

func (t *takeArguments) check(f *flag.FlagSet, keys []string) error {
	if err := needFlags(f, "scale", "limit"); err != nil {
		return err
	}
	return needKeys(keys)
}

func (t *takeArguments) take(ctx context.Context, out *output, c client, keys []string) (bool, error) {
	limits := make([]throttr.Limit, len(keys))
	for i, key := range keys {
		limits[i] = throttr.Limit{Key: key, Scale: *t.scale, Limit: t.limit, N: t.n}
	}
	ok, results, err := c.limiter().TakeAll(ctx, limits...)
	if err != nil {
		return false, err
	}
	printTakes(out, keys, results, ok)
	return ok, nil
}

func (t *takeArguments) wait(ctx context.Context, out *output, c client, keys []string) (bool, error) {
	var results []throttr.Result
	for _, key := range keys {
		res, err := c.limiter().Wait(ctx, key, *t.scale, t.limit, t.n)
		var late *throttr.DeadlineError
		switch {
		case errors.As(err, &late):
			res = throttr.Result{Limit: t.limit, RetryAfter: time.Until(late.At), ResetAfter: time.Until(late.At), ResetAt: late.At}
		case err != nil:
			return false, err
		}
		results = append(results, res)
		if late != nil {
			break
		}
	}
	printTakes(out, keys[:len(results)], results, true)
	return results[len(results)-1].Allowed && len(results) == len(keys), nil
}

// printTakes prints the decisions on takes. If not all are granted, none is.
func printTakes(out *output, keys []string, results []throttr.Result, granted bool) {
	out.table("key", "decision", ">count", ">limit", ">remaining", ">window ends in")
	for i, key := range keys {
		res := results[i]
		decision := "granted"
		switch {
		case !res.Allowed:
			decision = "refused"
		case !granted:
			decision = "not taken"
		}
		end := "-"
		if !res.ResetAt.IsZero() {
			end = formatDuration(res.ResetAfter)
		}
		out.add(hitRecord{keyOf(key), res.Allowed && granted, res.Count, res.Limit, res.Remaining, res.RetryAfter.Seconds(), res.ResetAt.UTC()},
			quoted(key), decision, number(res.Count), number(res.Limit), number(res.Remaining), end)
	}
}
