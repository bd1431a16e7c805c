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

// taking is a take of several.
type taking struct {
	access
	before algorithm.Record // what was counted before it
	takeID int64            // 0: it has not been made
}

// TakeAll implements [window.Backend]. It holds the mutexes of all shards of the windows at once.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	if len(takes) == 0 {
		return true, nil
	}
	for i := range takes {
		t := &takes[i]
		if err := b.check(ctx, &t.Limit, t.N); err != nil {
			return false, b.fail("take", t.Key, err)
		}
	}
	merged, index := limits.Merge(takes)
	if index == nil {
		granted, err = b.takeAll(takes, windows)
	} else {
		ofMerged := make([]window.Window, len(merged))
		granted, err = b.takeAll(merged, ofMerged)
		limits.Spread(windows, index, ofMerged)
	}
	return granted, b.fail("take", takes[0].Key, err)
}

// takeAll makes all takes or none. No two are of one count.
func (b *Backend) takeAll(takes []window.Take, windows []window.Window) (granted bool, err error) {
	var few [fewTakes]taking
	all := few[:]
	if len(takes) > len(few) {
		all = make([]taking, len(takes))
	}
	all = all[:len(takes)]
	var fewShards [fewTakes]*shard
	shards := fewShards[:0]
	for i := range all {
		all[i].locate(b, takes[i].Key, &takes[i].Limit)
		shards = insertShard(shards, all[i].shard)
	}
	for _, s := range shards {
		s.mu.Lock()
	}
	if first := shards[0]; first.closed {
		err = window.ErrClosed
	} else {
		first.calls++
		at := b.clock.now()
		for i := range all {
			all[i].at = at
		}
		granted, err = b.takeLocked(takes, all, windows)
	}
	for _, s := range shards {
		s.mu.Unlock()
	}
	return granted, err
}

// takeLocked makes all takes or none, and makes windows describe their windows. The mutexes of all shards
// are held.
//
// Keys that are new may share a count, and there may be no room for the second one. So a take can be refused because of
// one that was made before it: then that is undone.
func (b *Backend) takeLocked(takes []window.Take, all []taking, windows []window.Window) (granted bool, err error) {
	granted = true
	for i := range all {
		x := &all[i]
		x.find(b, &takes[i].Limit)
		windows[i] = window.Window{}
		x.describe(x.peek(takes[i].N), &windows[i])
		granted = granted && !windows[i].Refused
	}
	if !granted {
		return false, nil
	}
	for i := range all {
		x := &all[i]
		x.find(b, &takes[i].Limit) // again: another take may have removed or made its record
		var state algorithm.State
		if err = x.open(b, &takes[i].Limit); err == nil {
			x.before = x.record.Record
			state, err = x.take(b, &takes[i].Limit, takes[i].N)
		}
		if err != nil || state.Wait > 0 {
			b.undo(takes[:i], all[:i])
			windows[i] = window.Window{}
			x.describe(state, &windows[i])
			return false, err
		}
		x.takeID = state.ID
		windows[i] = window.Window{}
		x.describe(state, &windows[i])
	}
	for i := range all {
		if x := &all[i]; x.shares() { // others may have taken of the same count
			state := x.peek(0)
			state.ID = x.takeID
			state.Wait = 0
			x.describe(state, &windows[i])
		}
	}
	return true, nil
}

// undo undoes takes, the last one first. The mutexes are held.
func (b *Backend) undo(takes []window.Take, all []taking) {
	for i := len(all) - 1; i >= 0; i-- {
		x := &all[i]
		if x.algorithm.Logs {
			x.algorithm.GiveBack(&x.record.Record, &x.rule, &x.at, x.takeID, takes[i].N)
			continue
		}
		x.record.Record = x.before
	}
}

// insertShard adds a shard to a sorted list, unless it is there already. All callers lock shards in
// this order, so that none waits for another that waits for it.
func insertShard(sorted []*shard, s *shard) []*shard {
	at := len(sorted)
	for at > 0 && sorted[at-1].index > s.index {
		at--
	}
	if at > 0 && sorted[at-1] == s {
		return sorted
	}
	return slices.Insert(sorted, at, s)
}
