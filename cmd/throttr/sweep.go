package main

import (
	"context"
	"errors"
	"flag"
	"time"
)

var sweepCommand = command{
	name:  "sweep",
	short: "remove the records of rate limits whose clients have died",
	long: `Programs with a rate limit do this by themselves. It is needed if none of them runs, or to see
what they would do. Records of open windows and of other programs are not touched.

  found      records of rate limits
  removed    of them, those that nobody needs any more
  prolonged  those that would have expired soon, but may still be needed
  kept       those that are over, but may still be needed
  foreign    records of other programs, up to 256

With -every, it goes on until it is interrupted, and errors do not end it. -timeout bounds each
sweep.
`,
	examples: []string{"throttr sweep", "throttr sweep -dry-run", "throttr sweep -every 10s -timeout 1m"},
	timeout:  "the `time` that a sweep may take",
	define: func(f *flag.FlagSet) parser {
		var every time.Duration
		durationVar(f, &every, "every", 0, "the `time` between two sweeps; 0: sweep once")
		dryRun := f.Bool("dry-run", false, "print what would be done, and do nothing")
		return func(args []string) (action, error) {
			if every < 0 {
				return nil, errors.New("-every is less than 0")
			}
			once := func(ctx context.Context, e *env, c client) (bool, error) { return sweepOnce(ctx, e, c, *dryRun) }
			if every == 0 {
				return withClient(once), needArgs(args)
			}
			return repeat(every, withClient(once)), needArgs(args)
		}
	},
}

// sweepRecord is the JSON of a [throttr.Swept].
type sweepRecord struct {
	Server    string `json:"server"`
	Found     int    `json:"found"`
	Removed   int    `json:"removed"`
	Prolonged int    `json:"prolonged"`
	Kept      int    `json:"kept"`
	Foreign   int    `json:"foreign"`
	DryRun    bool   `json:"dry_run"`
}

// sweepOnce sweeps all servers.
func sweepOnce(ctx context.Context, e *env, c client, dryRun bool) (bool, error) {
	e.out.table("server", ">found", ">removed", ">prolonged", ">kept", ">foreign")
	all, err := c.Sweep(ctx, dryRun)
	for _, s := range all {
		e.out.add(sweepRecord{s.Server, s.Records, s.Removed, s.Prolonged, s.Kept, s.Foreign, dryRun},
			s.Server, number(uint64(s.Records)), number(uint64(s.Removed)), number(uint64(s.Prolonged)),
			number(uint64(s.Kept)), number(uint64(s.Foreign)))
	}
	return true, err
}

// repeat returns an action that runs once, again and again, until it is interrupted. It prints
// errors and goes on.
func repeat(every time.Duration, once action) action {
	return func(ctx context.Context, e *env) (bool, error) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			if _, err := once(ctx, e); err != nil && ctx.Err() == nil {
				printError(e.stderr, "sweep", err)
			}
			if err := e.out.flush(); err != nil {
				return false, err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return true, nil
			}
		}
	}
}
