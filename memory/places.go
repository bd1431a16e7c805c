package memory

import (
	"context"
	"iter"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/window"
)

// Exchange implements [window.Backend]. Up to [WithMaxKeys] keys and names have places in flight, beside as
// many windows. Places of package inflight have no lease on a Backend.
func (b *Backend) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	if err := b.Ping(ctx); err != nil {
		return b.after("exchange", "", err)
	}
	for i := range claims {
		p, wake := b.ledger.Exchange(&claims[i])
		if wake != nil {
			wake()
		}
		if p.Err != nil {
			p.Err = &api.CallError{Package: "memory", Call: "exchange", Key: claims[i].Key, Err: p.Err}
		}
		places[i] = p
	}
	return b.after("exchange", "", nil)
}

// Ledger is for package inflight, whose places on a Backend have no lease.
func (b *Backend) Ledger() *ledger.Ledger { return b.ledger }

// ListPlaces implements [window.Backend].
func (b *Backend) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	return func(yield func(window.ListedPlaces, error) bool) {
		if err := b.after("list places", "", b.Ping(ctx)); err != nil {
			yield(window.ListedPlaces{}, err)
			return
		}
		b.ledger.EachPlaces(keys, func(p window.ListedPlaces) bool { return yield(p, nil) })
	}
}
