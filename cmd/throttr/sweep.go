package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
)

func sweepCommand(e *env) *cobra.Command {
	var every time.Duration
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "remove the records of rate limits whose clients have died",
		Long: `Programs with a rate limit do this by themselves. It is needed if none of them
runs, or to see what they would do. Records of open windows and of other
programs are not touched.

  found    records of rate limits
  removed  of them, those that nobody needs any more
  kept     those that are over, but may still be needed
  foreign  records of other programs, up to 256

With --every, it goes on until it is interrupted, and errors do not end it.
--timeout bounds each sweep.`,
		Example: `  throttr sweep
  throttr sweep --dry-run
  throttr sweep --every 10s --timeout 1m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 0 {
				return errors.New("--every is less than 0")
			}
			once := func() error {
				return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) { return sweepOnce(ctx, e, c, dryRun) })
			}
			if every == 0 {
				return once()
			}
			return repeat(cmd, e, every, once)
		},
	}
	durationVar(cmd.Flags(), &every, "every", 0, "the `time` between two sweeps; 0: sweep once")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be done, and do nothing")
	return cmd
}

// sweepJSON is the JSON of an inspect.Swept.
type sweepJSON struct {
	Server  string `json:"server"`
	Found   int    `json:"found"`
	Removed int    `json:"removed"`
	Kept    int    `json:"kept"`
	Foreign int    `json:"foreign"`
	DryRun  bool   `json:"dry_run"`
}

// sweepOnce sweeps all servers.
func sweepOnce(ctx context.Context, e *env, c client, dryRun bool) (bool, error) {
	e.out.table("server", ">found", ">removed", ">kept", ">foreign")
	all, err := c.Sweep(ctx, dryRun)
	for _, s := range all {
		e.out.add(sweepJSON{s.Server, s.Records, s.Removed, s.Kept, s.Foreign, dryRun},
			s.Server, number(uint64(s.Records)), number(uint64(s.Removed)),
			number(uint64(s.Kept)), number(uint64(s.Foreign)))
	}
	return true, err
}

// repeat calls once again and again, until the command is interrupted. It prints errors and goes on.
func repeat(cmd *cobra.Command, e *env, every time.Duration, once func() error) error {
	ctx := cmd.Context()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := once(); err != nil && ctx.Err() == nil {
			printError(e.stderr, cmd.CommandPath(), err)
		}
		if err := e.out.flush(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
