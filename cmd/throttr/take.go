package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr"
)

func takeCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "take --scale 1m --limit 100 key...",
		Short: "take from the windows of all keys or of none, print the decision",
		Long: `Unlike a hit, a take that is refused counts nothing. If one key refuses, nothing
is taken from the others. Hits and takes share a window.

Exit status 1: a take was refused.`,
		Example: `  throttr take --scale 1m --limit 1000 -n 250 tokens:acme
  throttr take --scale 1h --limit 100 --json user:42 team:7`,
	}
	takeFlags(e, cmd, (*takeArguments).take)
	return cmd
}

func waitCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait --scale 1m --limit 100 key...",
		Short: "wait until a take of each key is granted, one key after the other",
		Long: `For scripts that share a limit: the command after it runs when there is room. It
waits for as long as --timeout, which is for all keys together, and ends at once
if that can't be enough.

Exit status 1: it would take longer than --timeout.`,
		Example: "  throttr wait --timeout 10m --scale 1m --limit 100 provider && ./send-mail",
	}
	takeFlags(e, cmd, (*takeArguments).wait)
	return cmd
}

// takeArguments are the flags of take and wait.
type takeArguments struct {
	scale  time.Duration
	max, n uint64
}

func (t *takeArguments) limit() throttr.Limit { return throttr.Limit{Max: t.max, Scale: t.scale} }

// takeFlags defines the flags of a command that does what do does.
func takeFlags(e *env, cmd *cobra.Command, do func(t *takeArguments, ctx context.Context, out *output, limiter *throttr.RateLimit, keys []string) (bool, error)) {
	t, f := new(takeArguments), cmd.Flags()
	durationVar(f, &t.scale, "scale", 0, "the `scale`, the length of a window, such as 1m")
	f.Uint64Var(&t.max, "limit", 0, "the `count` that a window may have")
	f.Uint64VarP(&t.n, "count", "n", 1, "`how many` to take")
	needFlags(cmd, "scale", "limit")
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, keys []string) error {
		return e.withLimiter(cmd.Context(), func(ctx context.Context, limiter *throttr.RateLimit) (bool, error) {
			return do(t, ctx, e.out, limiter, keys)
		})
	}
}

func (t *takeArguments) take(ctx context.Context, out *output, limiter *throttr.RateLimit, keys []string) (bool, error) {
	takes := make([]throttr.Take, len(keys))
	for i, key := range keys {
		takes[i] = t.limit().For(key, t.n)
	}
	ok, results, err := limiter.TakeAll(ctx, takes...)
	if err != nil {
		return false, err
	}
	printTakes(out, keys, results, ok)
	return ok, nil
}

func (t *takeArguments) wait(ctx context.Context, out *output, limiter *throttr.RateLimit, keys []string) (bool, error) {
	var results []throttr.Result
	for _, key := range keys {
		res, err := limiter.Wait(ctx, key, t.limit(), t.n)
		var late *throttr.DeadlineError
		switch {
		case errors.As(err, &late):
			res = throttr.Result{Limit: t.max, RetryAfter: time.Until(late.At), ResetAfter: time.Until(late.At), ResetAt: late.At}
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
		addHit(out, key, res, res.Allowed && granted, decision)
	}
}
