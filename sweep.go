package throttr

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/sweep"
)

// Swept is what [Client.Sweep] found on one server, and what it did.
type Swept struct {
	Server    string // as in Config.Servers
	Records   int    // records of windows, of all clients
	Removed   int    // records of windows that were over; in a dry run, those that would be removed
	Prolonged int    // records that would have expired too soon; in a dry run, those that would be prolonged
	Kept      int    // records of windows that are over, but whose names clients may use again
	Foreign   int    // records of other programs, up to 256
}

// Sweep removes, from all servers, the records of windows that are over and that their clients
// have not removed. Every [ServerBackend] does so by itself. Sweep is for servers that no program
// with a ServerBackend uses at the moment. On a server that is not parked, it prolongs records that
// would expire although clients may use their names again. A dry run changes nothing. Sweep never
// touches the records of open windows and of other programs.
//
// Sweep pauses so that the requests of others pass, and takes up to half a minute for that. It
// returns what was found on each server, in the order of Config.Servers, and the errors, joined:
// each is a [*RequestError].
func (c *Client[T]) Sweep(ctx context.Context, dryRun bool) ([]Swept, error) {
	return each(c.servers.all, func(s *server[T]) ([]Swept, error) {
		remover := fixedwindow.NewRemover(s.pool, &c.calls, c.cfg.MaxInFlight)
		defer remover.Close()
		sweeper := sweep.New(sweep.Options[T]{
			Server: s.pool, Rule: &fixedwindow.Rule[T]{}, Remover: remover, Calls: &c.calls, Now: time.Now,
			MaxInFlight: c.cfg.MaxInFlight, DryRun: dryRun,
		})
		r, err := sweeper.Sweep(ctx, time.Now().Add(sweepTime))
		if err != nil {
			err = requestError(s.name, codec.OpList, !dryRun, err)
		}
		return []Swept{{
			Server: s.name, Records: r.Records, Removed: r.Removed, Prolonged: r.Prolonged,
			Kept: r.Kept, Foreign: r.Foreign,
		}}, err
	})
}

// sweepTime is how long Client.Sweep may take so that it does not delay others' requests.
const sweepTime = 30 * time.Second
