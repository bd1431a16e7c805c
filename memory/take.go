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

// TakeAll implements [window.Backend]. It holds the mutexes of all shards of the windows at once.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	check := func(t *window.Take) error { return b.check(ctx, &t.Limit, t.N) }
	granted, key, err := limits.TakeAll(ctx, takes, windows, check, b.takeAll)
	return granted, b.fail("take", key, err)
}

// takeAll makes all takes or none. No two are of one count.
func (b *Backend) takeAll(_ context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	var few [fewTakes]access
	all := few[:min(len(takes), len(few))]
	if len(takes) > len(few) {
		all = make([]access, len(takes))
	}
	var fewShards [fewTakes]*shard
	shards := fewShards[:0]
	for i := range all {
		all[i].locate(b, takes[i].Key, &takes[i].Limit)
		shards = append(shards, all[i].shard)
	}
	// All callers lock shards in this order, so that none waits for another that waits for it.
	slices.SortFunc(shards, func(s, t *shard) int { return int(s.index - t.index) })
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
	granted, full := b.takeLocked(takes, all, windows, at)
	if full {
		for _, s := range shards {
			s.sweep(at)
		}
		granted, _ = b.takeLocked(takes, all, windows, at)
	}
	return granted, nil
}

// takeLocked makes all takes or none, and makes windows describe their windows. Full reports that there is no room for
// takes that are within their limits. The mutexes of all shards are held.
func (b *Backend) takeLocked(takes []window.Take, all []access, windows []window.Window,
	at algorithm.Time) (granted, full bool) {
	granted = true
	for i := range all {
		x := &all[i]
		x.at = at
		x.record = x.shard.find(x.id, &takes[i].Limit)
		state := x.peek(takes[i].N)
		granted = granted && state.Wait == 0
		state.Describe(&x.at, &windows[i])
	}
	if !granted {
		return false, false
	}
	for i := range all {
		x := &all[i]
		switch {
		case takes[i].N == 0:
		case !x.fits(b):
			state := x.full(b, windows[i].Left)
			state.Describe(&x.at, &windows[i])
			full = true
		default: // the room of this one is none for the next
			x.add(&takes[i].Limit)
		}
	}
	for i := range all {
		x := &all[i]
		switch {
		case takes[i].N == 0:
		case !full:
			state := x.count(b, take, takes[i].N)
			state.Describe(&x.at, &windows[i])
		case x.record != nil:
			x.shard.removeEmpty(x.record)
		}
	}
	return !full, full
}
