package memory

import (
	"context"
	"slices"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// fewTakes is how many takes need no allocation.
const fewTakes = 4

// place is where the record of a take is, or will be.
type place struct {
	id
	*shard
}

// TakeAll implements [window.Backend]. It holds the mutexes of all shards of the windows at once.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	check := func(t *window.Take) error { return algorithm.Check(&t.Limit, t.N, b.maxLog) }
	granted, key, err := limits.TakeAll(ctx, takes, windows, check, b.takeAll)
	if err != nil {
		return false, b.after("take", key, err)
	}
	return granted, nil
}

// takeAll makes all takes or none. No two are of one count.
func (b *Backend) takeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	all := make([]place, 0, fewTakes)
	shards := make([]*shard, 0, fewTakes)
	for i := range takes {
		k, s := b.locate(takes[i].Key, &takes[i].Limit)
		all = append(all, place{k, s})
		shards = append(shards, s)
	}
	// All callers lock shards in this order, so that none waits for another that waits for it.
	slices.SortFunc(shards, func(s, t *shard) int { return s.index - t.index })
	shards = slices.Compact(shards)
	for _, s := range shards {
		s.mu.Lock()
	}
	defer func() {
		for _, s := range shards {
			s.mu.Unlock()
		}
	}()
	if shards[0].closed {
		return false, window.ErrClosed
	}
	shards[0].calls++
	at := b.clock.now()
	granted, full := b.peekAll(takes, all, windows, at)
	if full {
		for _, s := range shards {
			s.sweep(at)
		}
		granted, _ = b.peekAll(takes, all, windows, at)
	}
	for i := range all {
		if granted && takes[i].N > 0 {
			p := &all[i]
			windows[i] = p.apply(algorithm.Take, &p.id, &takes[i].Limit, takes[i].N, at).Window(at)
		}
	}
	return granted, nil
}

// peekAll reports whether all takes would be granted, and makes windows describe what each would return. Full reports
// that all are within their limits, and there is no room for all of them.
func (b *Backend) peekAll(takes []window.Take, all []place, windows []window.Window,
	at algorithm.Time) (granted, full bool) {
	limited := false
	for i := range all {
		p, l := &all[i], &takes[i].Limit
		state := p.apply(algorithm.Peek, &p.id, l, takes[i].N, at)
		full = full || state.Wait == algorithm.NoRoom
		limited = limited || state.Wait > 0
		switch {
		case state.Wait == algorithm.NoRoom:
			state = b.usedUp(l, state)
		case state.Wait == 0 && takes[i].N > 0:
			p.reserve(l, 1)
		}
		windows[i] = state.Window(at)
	}
	for i := range all {
		if !windows[i].Refused && takes[i].N > 0 {
			all[i].reserve(&takes[i].Limit, -1)
		}
	}
	return !full && !limited, full && !limited
}

// reserve has a shard count what a take will add to it, so that its room is none for the next take, or not any more.
func (p *place) reserve(l *window.Limit, sign int) {
	var record algorithm.Record
	if r := p.find(&p.id, l); r != nil {
		record = r.Record
	} else {
		p.count += sign
	}
	p.times += sign * algorithm.Of(l.Algorithm).Needs(&record)
}
