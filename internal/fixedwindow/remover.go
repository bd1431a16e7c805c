package fixedwindow

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
)

// sweepMargin is how long before its end a sweep has to begin, beside the guards: for
// requests, and for the clocks of timers.
const sweepMargin = time.Second

// Remover removes the records of one server that Inspect has decided to remove. Those of slots
// take several lookups and actions, which go out on a link.
type Remover struct {
	link *link
}

// NewRemover returns a Remover. Close it after use.
func NewRemover(s Server, calls *conn.Calls) *Remover {
	return &Remover{link: newLink(s, calls, new(atomic.Uint64))}
}

// Inspect is the [sweep.Inspect] of the records of windows, of all keys and limits. It knows them by their names.
//
// A record of a slot is removed by its janitor as soon as it is doomed. If it comes below
// [slot.Bands.Watch], the janitor has died, and the sweeper removes the records of the key.
func (r *Remover) Inspect(name []byte, left uint64) sweep.Decision {
	n, ok := ParseName(name)
	bands, fits := n.bands(r.link.calls.Size().Largest())
	if !ok || !fits || limits.CheckScale(n.Scale) != nil || left > bands.Top {
		return sweep.Decision{} // of somebody else
	}
	d := sweep.Decision{Interval: sweepInterval(&bands)}
	d.Over = left < bands.Margin
	if left < bands.Watch {
		d.Target = string(bothSlots(name)[slot.A]) // the records of both are removed together
	}
	return d
}

// sweepInterval returns at which interval a server that is not parked must be swept: three times
// while only sweepers remove a record.
func sweepInterval(b *slot.Bands) time.Duration {
	left := time.Duration(b.Watch)*b.Unit - 4*b.Guard - sweepMargin
	return max(left/3, time.Millisecond)
}

// Remove is a [sweep.Remove].
func (r *Remover) Remove(ctx context.Context, targets []string) (removed int, err error) {
	var cleanings []*cleaning
	for _, t := range targets {
		n, ok := ParseName([]byte(t))
		bands, fits := n.bands(r.link.calls.Size().Largest())
		if !ok || !fits {
			return 0, fmt.Errorf("fixedwindow: %q is not a target", t)
		}
		cleanings = append(cleanings, &cleaning{
			records: records{&bands, bothSlots([]byte(t))},
			decide:  func(h slot.History) slot.Action { return bands.Clean(h, bands.Watch) },
		})
	}
	err = clean(ctx, r.link, cleanings)
	late := 0
	for _, k := range cleanings {
		removed += k.removed
		if !k.done {
			late++
		}
	}
	if err == nil && late > 0 {
		err = fmt.Errorf("%w: the server responds too slowly to remove the records of %d windows", ErrTooLate, late)
	}
	return removed, err
}

// Close ends the connection.
func (r *Remover) Close() { r.link.close() }
