package memory

import (
	"context"
	"iter"

	"github.com/throttr-go/throttr/window"
)

// ListPlaces implements [window.Backend].
func (b *Backend) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	return func(yield func(window.ListedPlaces, error) bool) {
		if err := b.Ping(ctx); err != nil {
			yield(window.ListedPlaces{}, b.fail("list places", "", err))
			return
		}
		b.ledger().EachPlaces(keys, func(p window.ListedPlaces) bool { return yield(p, nil) })
	}
}
