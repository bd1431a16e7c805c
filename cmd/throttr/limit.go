package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr"
)

func hitCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hit --scale 1m --limit 100 key...",
		Short: "count a hit on each key's window, and print the decision",
		Long: `The first hit of a key opens a window, which ends one scale later.

This program ends before the window does. The record of the window then stays on
the server until its TTL ends; a program that keeps its client removes it
sooner. To remove it, reset the window.

Exit status 1: a hit was denied.`,
		Example: `  throttr hit --scale 1m --limit 100 user:42
  throttr hit --scale 1h --limit 5000 -n 10 --json user:42 user:43`,
	}
	limitFlags(e, cmd, "hits", "the number of `hits` to count; 0 reads the window only", hit)
	return cmd
}

// limitFlags defines the flags of a command that does something with n and a limit of keys.
func limitFlags(e *env, cmd *cobra.Command, count, usage string, do func(context.Context, *output, *throttr.RateLimit, []throttr.Take) (bool, error)) {
	var l throttr.Limit
	var n uint64
	f := cmd.Flags()
	durationVar(f, &l.Scale, "scale", 0, "the `scale`, the length of a window, such as 1m")
	f.Uint64Var(&l.Max, "limit", 0, "the `count` that a window may have")
	f.Uint64VarP(&n, count, "n", 1, usage)
	needFlags(cmd, "scale", "limit")
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, keys []string) error {
		return e.withLimiter(cmd.Context(), func(ctx context.Context, limiter *throttr.RateLimit) (bool, error) {
			takes := make([]throttr.Take, len(keys))
			for i, key := range keys {
				takes[i] = l.For(key, n)
			}
			e.out.table("key", "decision", ">count", ">limit", ">remaining", ">window ends in")
			return do(ctx, e.out, limiter, takes)
		})
	}
}

// hitJSON is the JSON of a hit.
type hitJSON struct {
	keyed
	Allowed           bool      `json:"allowed"`
	Count             uint64    `json:"count"`
	Limit             uint64    `json:"limit"`
	Remaining         uint64    `json:"remaining"`
	RetryAfterSeconds *float64  `json:"retry_after_seconds,omitempty"` // nil: waiting does not help
	ResetAt           time.Time `json:"reset_at,omitzero"`
}

// addHit prints a decision.
func addHit(out *output, key string, res throttr.Result, allowed bool, decision string) {
	r := hitJSON{keyed: keyOf(key), Allowed: allowed, Count: res.Count, Limit: res.Limit, Remaining: res.Remaining, ResetAt: res.ResetAt.UTC()}
	if res.RetryAfter < throttr.Never {
		seconds := res.RetryAfter.Seconds()
		r.RetryAfterSeconds = &seconds
	}
	end := "-"
	if !res.ResetAt.IsZero() {
		end = formatDuration(res.ResetAfter)
	}
	out.add(r, quoted(key), decision, number(res.Count), number(res.Limit), number(res.Remaining), end)
}

func hit(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error) {
	return forAll(takes, func(t throttr.Take) (bool, error) {
		call := limiter.HitN
		if t.N == 0 {
			call = limiter.Peek // HitN would open a window
		}
		res, err := call(ctx, t.Key, t.Limit, t.N)
		if err == nil {
			addHit(out, t.Key, res, res.Allowed, map[bool]string{true: "allowed", false: "denied"}[res.Allowed])
		}
		return res.Allowed, err
	})
}

func resetCommand(e *env) *cobra.Command {
	var scale time.Duration
	cmd := &cobra.Command{
		Use:   "reset --scale 1m key...",
		Short: "end each key's window, so that the next hit opens a new one",
		Long: `The scale must be the one of the hits: windows of different scales are
independent.

Exit status 1: a key has no window.`,
		Example: "  throttr reset --scale 1m user:42",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, keys []string) error {
			return e.withLimiter(cmd.Context(), func(ctx context.Context, limiter *throttr.RateLimit) (bool, error) {
				return e.each(keys, "reset", "no window", func(key string) (bool, error) {
					n, err := limiter.Delete(ctx, key, scale)
					return n > 0, err
				})
			})
		},
	}
	durationVar(cmd.Flags(), &scale, "scale", 0, "the `scale` of the windows, such as 1m")
	needFlags(cmd, "scale")
	return cmd
}
