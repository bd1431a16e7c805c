package memory

import (
	"context"
	"iter"
	"slices"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// List implements [window.Backend].
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		wanted := map[*shard][]id{}
		for _, key := range keys {
			k := b.idOf(key)
			s := b.shardOf(k)
			wanted[s] = append(wanted[s], k)
		}
		more := true
		for i := range b.shards {
			s := &b.shards[i]
			if len(keys) == 0 || wanted[s] != nil {
				more = more && b.list(ctx, s, wanted[s], yield)
			}
		}
	}
}

// list yields the counts of a shard, of some keys or of all. It returns false if the loop has ended.
func (b *Backend) list(ctx context.Context, s *shard, keys []id, yield func(window.Listed, error) bool) (more bool) {
	var some []window.Listed
	s.walk(b, func(r *record, at algorithm.Time) {
		if keys != nil && !slices.ContainsFunc(keys, r.hasKeyOf) {
			return
		}
		s.scratch = r.Record
		by := r.rule()
		if state := algorithm.Of(r.kind).Peek(&s.scratch, &by, &at, 0); state.Left > 0 {
			some = append(some, b.listed(r, at, state))
		}
	}, func() bool {
		err := b.Ping(ctx)
		if more = err == nil; !more {
			yield(window.Listed{}, b.fail("list", "", err))
			return false
		}
		for _, l := range some {
			if more = yield(l, nil); !more {
				return false
			}
		}
		some = some[:0]
		return true
	})
	return more
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
