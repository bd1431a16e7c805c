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
		look := func(r *record, at algorithm.Time) {
			if l := r.listed(at); l.Window.Left > 0 {
				some = append(some, l)
			}
		}
		rest := func() (more bool) {
			if err := b.Ping(ctx); err != nil {
				yield(window.Listed{}, b.fail("list", "", err))
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
		if len(keys) > 0 {
			b.listKeys(keys, look, rest)
			return
		}
		for i := range b.shards {
			if !b.walk(&b.shards[i], look, rest) {
				return
			}
		}
	}
}

// listKeys is walk for the records of some keys.
func (b *Backend) listKeys(keys []string, look func(r *record, at algorithm.Time), rest func() bool) {
	for _, key := range keys {
		k := b.idOf(key)
		s := b.shardOf(k.hash)
		s.mu.Lock()
		at := b.clock.now()
		for r := s.cells[k.hash>>s.shift]; r != nil; r = r.next {
			if r.hasKey(&k) {
				look(r, at)
			}
		}
		s.mu.Unlock()
		if !rest() {
			return
		}
	}
}
