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
	limitFlags(e, cmd, "count", "`how many` to take", take)
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
	limitFlags(e, cmd, "count", "`how many` to take", wait)
	return cmd
}

func take(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error) {
	ok, results, err := limiter.TakeAll(ctx, takes...)
	if err != nil {
		return false, err
	}
	for i, t := range takes {
		addTake(out, t, results[i], ok)
	}
	return ok, nil
}

func wait(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error) {
	var results []throttr.Result
	granted := true
	for _, t := range takes {
		res, err := limiter.Wait(ctx, t.Key, t.Limit, t.N)
		var late *throttr.DeadlineError
		switch {
		case errors.As(err, &late):
			res = throttr.Result{Limit: t.Limit.Max, RetryAfter: time.Until(late.At), ResetAfter: time.Until(late.At), ResetAt: late.At}
		case err != nil:
			return false, err
		}
		results = append(results, res)
		if granted = late == nil; !granted {
			break
		}
	}
	for i, res := range results {
		addTake(out, takes[i], res, true)
	}
	return granted, nil
}

// addTake prints the decision on a take. If not all are granted, none is.
func addTake(out *output, t throttr.Take, res throttr.Result, all bool) {
	decision := "granted"
	switch {
	case !res.Allowed:
		decision = "refused"
	case !all:
		decision = "not taken"
	}
	addHit(out, t.Key, res, res.Allowed && all, decision)
}
