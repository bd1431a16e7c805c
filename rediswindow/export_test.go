package rediswindow

import (
	"context"
	"slices"

	"github.com/throttr-go/throttr/window"
)

// Asked is a call that shares a request: a take of all its takes, or what Verb says of the first.
type Asked struct {
	Verb   string // take, hit, peek, charge, set, back, reset or delete
	Takes  []window.Take
	ID     int64 // back
	Scales string

	// What the call has returned.
	Windows []window.Window
	N       int
	Err     error
}

var verbs = map[string]verb{"take": take, "hit": count, "charge": count, "peek": peek, "set": set, "back": back, "reset": reset, "delete": deleteAll}

// Request makes calls with one request, and sorts them in the order in which the script makes them.
func (b *Backend) Request(ctx context.Context, asked []*Asked) error {
	calls := make([]*combined, len(asked))
	of := map[*Asked]*call{}
	for i, a := range asked {
		calls[i] = b.combiner().Get()
		v := &calls[i].Value
		*v = call{}
		for _, t := range a.Takes {
			p := policy{verb: verbs[a.Verb], limit: t.Limit, n: t.N, id: a.ID, scales: a.Scales}
			if p.verb == count && !t.Limit.Algorithm.Rolling() {
				p.limit.Max = 0
			}
			v.parts = append(v.parts, part{t.Key, p})
		}
		of[a] = v
	}
	if err := b.request(ctx, calls); err != nil {
		return err
	}
	for _, a := range asked {
		v := of[a]
		a.Windows, a.N, a.Err = v.windows, v.n, v.err
	}
	slices.SortFunc(asked, func(x, y *Asked) int {
		return 1000*(of[x].equals-of[y].equals) + of[x].rank - of[y].rank
	})
	return nil
}
