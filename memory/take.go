package memory

import (
	"context"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// fewTakes is how many takes need no allocation.
const fewTakes = 4

// TakeAll implements [window.Backend]. It holds the mutexes of all shards of the windows at once.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	if len(takes) == 0 {
		return true, nil
	}
	if len(takes) <= fewTakes && ctx.Err() == nil && b.takeFew(takes, windows) {
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
	var few [fewTakes]access
	all := few[:]
	if len(takes) > len(few) {
		all = make([]access, len(takes))
	}
	all = all[:len(takes)]
	var fewShards [fewTakes]*shard
	shards := fewShards[:0]
	for i := range all {
		all[i].shard = b.locate(takes[i].Key, &takes[i].Limit, &all[i].id)
		shards = insertShard(shards, all[i].shard)
	}
	for _, s := range shards {
		s.mu.Lock()
	}
	shards[0].calls++
	granted, err = b.takeLocked(takes, all, windows)
	for _, s := range shards {
		s.mu.Unlock()
	}
	return granted, err
}

// takeLocked makes all takes or none, and makes windows describe their windows. The mutexes of all shards
// are held.
//
// Keys that are new may share a count. So a take can be refused because of one that was made before it:
// then that is undone.
func (b *Backend) takeLocked(takes []window.Take, all []access, windows []window.Window) (granted bool, err error) {
	granted = true
	for i := range all {
		x := &all[i]
		if err := x.load(b); err != nil {
			return false, err
		}
		granted = x.peek(ruleOf(&takes[i].Limit), takes[i].N, &windows[i]).granted && granted
	}
	if !granted {
		return false, nil
	}
	for i := range all {
		x := &all[i]
		if err = x.load(b); err != nil {
			return false, err
		}
		x.before, x.opened = x.entry, x.record == nil
		v, err := x.take(b, ruleOf(&takes[i].Limit), takes[i].N)
		if err != nil || !v.granted {
			b.undoAll(takes[:i], all[:i])
			windows[i].Refused, windows[i].RetryAfter = true, v.wait
			return false, err
		}
		windows[i].ID = 0
		if !x.entry.isNew() {
			windows[i].ID = x.algorithm().id(x.entry)
		}
	}
	for i := range all {
		takeID := windows[i].ID
		if err := all[i].load(b); err != nil {
			return false, err
		}
		all[i].describeNow(&windows[i])
		windows[i].ID = takeID
	}
	return true, nil
}

// undoAll undoes takes, the last one first. The mutexes are held.
func (b *Backend) undoAll(takes []window.Take, all []access) {
	for i := len(all) - 1; i >= 0; i-- {
		all[i].undo(takes[i].N)
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
	sorted = append(sorted, s)
	for k := len(sorted) - 1; k > at; k-- {
		sorted[k] = sorted[k-1]
	}
	sorted[at] = s
	return sorted
}

// fewTaking is a take of few. If another one is refused, its record gets back what it had before.
type fewTaking struct {
	shard  *shard
	hash   uint32
	record record
	count  uint64 // before
}

// takeFew makes a few takes if all windows are fixed, active, different and have room, as most are. It
// returns false, and changes nothing, if it can't: takeAll decides then. It looks at each window
// once, which takes a fifth less time than takeAll.
func (b *Backend) takeFew(takes []window.Take, windows []window.Window) bool {
	var few [fewTakes]fewTaking
	all := few[:len(takes)]
	var fewShards [fewTakes]*shard
	shards := fewShards[:0]
	for i := range all {
		l := &takes[i].Limit
		if l.Algorithm != window.FixedWindow && l.Algorithm != window.AlignedWindow || l.Burst != 0 ||
			l.Max > window.Unlimited || l.Scale < window.MinScale || len(takes[i].Key) > maxKey {
			return false
		}
		var k id
		s := b.locate(takes[i].Key, l, &k)
		for j := range i {
			if all[j].hash == k.hash {
				return false // probably the same window
			}
		}
		all[i].shard, all[i].hash = s, k.hash
		shards = insertShard(shards, s)
	}
	for _, s := range shards {
		s.mu.Lock()
	}
	done := 0
	for done < len(all) && all[done].take(b, &takes[done], &windows[done]) {
		done++
	}
	if done < len(all) {
		for i := range done {
			all[i].record.setCount(all[i].count)
		}
	} else {
		shards[0].calls++
	}
	for _, s := range shards {
		s.mu.Unlock()
	}
	return done == len(all)
}

// take makes a take if the window is active and has room. The mutex is held.
func (t *fewTaking) take(b *Backend, x *window.Take, w *window.Window) bool {
	s, l := t.shard, &x.Limit
	var k id
	k.key, k.name, k.scale, k.hash, k.kind = x.Key, l.Name, l.Scale, t.hash, kindOf(l)
	if t.record = s.find(&k); t.record == nil {
		return false
	}
	a := &algorithms[l.Algorithm]
	e := t.record.entry()
	if x.N > l.Max || e.count > l.Max-x.N {
		return false
	}
	now := s.hitTime(b, &e, a.aligned, l.Max, x.N)
	if !e.active(now) {
		return false
	}
	t.count = e.count
	t.record.setCount(e.count + x.N)
	end := e.end()
	w.Count, w.ID, w.Left, w.ExpiresAt = e.count+x.N, e.id(), minus(end, now), s.timeOf(int64(minus(end, s.shift(a))))
	w.Refused, w.RetryAfter = false, 0
	return true
}
