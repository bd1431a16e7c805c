package memory

import (
	"context"
	"iter"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// List implements [window.Backend].
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		var some []window.Listed
		var failure error
		look := func(r *row, at algorithm.Time) {
			if r.left(at) > 0 { // of others, no strings are made while the mutex is locked
				some = append(some, r.listed(at))
			}
		}
		rest := func() (more bool) {
			if failure = b.Ping(ctx); failure != nil {
				return false
			}
			for _, l := range some {
				if !yield(l, nil) {
					return false
				}
			}
			some = some[:0]
			return true
		}
		for _, key := range keys {
			k, s := b.locate(key, &window.Limit{})
			ofKey := func(r *row, at algorithm.Time) {
				if r.hasKey(&k) {
					look(r, at)
				}
			}
			if !b.walk(s, ofKey, rest) {
				break
			}
		}
		for i := range b.shards {
			if len(keys) == 0 && !b.walk(&b.shards[i], look, rest) {
				break
			}
		}
		if err := b.after("list", "", failure); err != nil {
			yield(window.Listed{}, err)
		}
	}
}

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
