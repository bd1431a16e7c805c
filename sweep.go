package throttr

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/sweep"
)

// Sweep removes, from all servers, the records of windows that are over and that their clients
// have not removed. Every [ServerBackend] does so by itself. Sweep is for servers that no program
// with a ServerBackend uses at the moment. A dry run changes nothing. Sweep never
// touches the records of open windows and of other programs.
//
// Sweep pauses so that the requests of others pass, and takes up to half a minute for that. It
// returns what was found on each server, in the order of Config.Servers, and the errors, joined:
// each is a [*RequestError].
func (c *client) Sweep(ctx context.Context, dryRun bool) ([]inspect.Swept, error) {
	return each(c.servers.all, func(s *server) ([]inspect.Swept, error) {
		remover := fixedwindow.NewRemover(s.pool, c.calls)
		defer remover.Close()
		sweeper := sweep.New(sweep.Options{
			Server: s.pool, Inspect: remover.Inspect, Remove: remover.Remove, Calls: c.calls,
			MaxInFlight: c.cfg.MaxInFlight, MaxQueued: c.cfg.MaxQueued, DryRun: dryRun,
		})
		r, err := sweeper.Sweep(ctx, time.Now().Add(sweepTime))
		if err != nil {
			err = &RequestError{Server: s.name, Op: codec.OpList, Sent: !dryRun, Err: err}
		}
		return []inspect.Swept{{
			Server: s.name, Records: r.Records, Removed: r.Removed,
			Kept: r.Kept, Foreign: r.Foreign,
		}}, err
	})
}

// sweepTime is how long Client.Sweep may take so that it does not delay others' requests.
const sweepTime = 30 * time.Second
