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
		if len(keys) == 0 {
			for i := range b.shards {
				if !b.list(ctx, &b.shards[i], nil, yield) {
					return
				}
			}
		}
		for _, key := range keys {
			k := b.idOf(key)
			if !b.list(ctx, b.shardOf(k), &k, yield) {
				return
			}
		}
	}
}

// list yields the counts of a shard, of a key or of all. It returns false if the loop has ended.
func (b *Backend) list(ctx context.Context, s *shard, key *id, yield func(window.Listed, error) bool) (more bool) {
	var some []window.Listed
	for range s.walk(b, func(r *record, at algorithm.Time) {
		if key != nil && !r.hasKeyOf(*key) {
			return
		}
		s.scratch = r.Record
		by := r.rule()
		if state := algorithm.Of(r.kind).Peek(&s.scratch, &by, &at, 0); state.Left > 0 {
			some = append(some, b.listed(r, at, state))
		}
	}) {
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
	}
	return true
}

// listed describes a record in a state.
func (b *Backend) listed(r *record, at algorithm.Time, s algorithm.State) window.Listed {
	l := r.limit()
	l.Max = r.Max
	if r.Holds != r.Max {
		l.Burst = r.Holds
	}
	return window.Listed{
		Key: r.key(), Digest: r.digest, Limit: l,
		Window: window.Window{Count: s.Count, Left: s.Left, ExpiresAt: at.After(s.Left), ID: s.ID},
	}
}
