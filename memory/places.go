package memory

import (
	"context"
	"iter"

	"github.com/throttr-go/throttr/window"
)

// ListPlaces implements [window.Backend].
func (b *Backend) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	return func(yield func(window.ListedPlaces, error) bool) {
		b.ledger().EachPlaces(keys, func(all []window.ListedPlaces) bool {
			if err := b.Ping(ctx); err != nil {
				yield(window.ListedPlaces{}, b.fail("list places", "", err))
				return false
			}
			for _, p := range all {
				if !yield(p, nil) {
					return false
				}
			}
			return true
		})
	}
}
