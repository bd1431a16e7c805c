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
	text := 0
	for i := range all {
		x, l := &all[i], &takes[i].Limit
		x.shard = b.locate(takes[i].Key, l.Algorithm, l.Scale, l.Name, &x.id)
		shards = insertShard(shards, x.shard)
		text += x.id.textLen()
	}
	for _, s := range shards {
		s.mu.Lock()
	}
	for _, s := range shards {
		if err == nil {
			err = s.begin(b, len(takes), text)
			s.calls--
		}
	}
	shards[0].calls++
	if err == nil {
		granted, err = b.takeLocked(takes, all, windows)
	}
	for i := range all {
		all[i].release()
	}
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
		x.load(b)
		granted = x.peek(ruleOf(&takes[i].Limit), takes[i].N, &windows[i]).granted && granted
	}
	if !granted {
		return false, nil
	}
	for i := range all {
		x := &all[i]
		x.load(b)
		x.before, x.opened = x.state, x.record == nil
		v, err := x.take(b, ruleOf(&takes[i].Limit), takes[i].N)
		if err != nil || !v.granted {
			b.undoAll(takes[:i], all[:i])
			windows[i].Refused, windows[i].RetryAfter = true, v.wait
			return false, err
		}
		windows[i].ID = 0
		if !x.state.isNew() {
			windows[i].ID = x.algorithm().id(x.state)
		}
	}
	for i := range all {
		takeID := windows[i].ID
		all[i].read() // not load: its window may be over by now
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

// takeFew makes a few takes if all windows are fixed, active, different and have room, as most are. It
// returns false, and changes nothing, if it can't: takeAll decides then. It looks at each window once, and needs
// only the locks of their records. It waits for none of them, as other calls that wait for one hold another.
func (b *Backend) takeFew(takes []window.Take, windows []window.Window) bool {
	var few [fewTakes]*record
	records := few[:0]
	defer func() {
		for _, r := range records {
			r.mu.Unlock()
		}
	}()
	for i := range takes {
		x, l := &takes[i], &takes[i].Limit
		if l.Algorithm != window.FixedWindow && l.Algorithm != window.AlignedWindow || l.Burst != 0 || limits.HasCalendar(l) || l.Max > window.Unlimited || x.N > l.Max {
			return false
		}
		var k windowID
		s := b.locate(x.Key, l.Algorithm, l.Scale, l.Name, &k)
		r := s.table.Load().find(&k)
		if r == nil || !r.mu.TryLock() { // it is also locked if it is that of an earlier take
			return false
		}
		records = append(records, r)
		if r.busy() || r.count > l.Max-x.N || !b.describeFixed(x, r, &windows[i]) {
			return false
		}
	}
	for i, r := range records {
		r.count += takes[i].N
	}
	records[0].calls++
	return true
}

// describeFixed makes w describe a fixed window as it is after a take, and reports whether it is active. Mu is
// held.
func (b *Backend) describeFixed(x *window.Take, r *record, w *window.Window) bool {
	a, e := &algorithms[x.Limit.Algorithm], r.state()
	now, ref := b.clock.fixedTime(&e, a.aligned)
	if e.isNew() || !e.active(now) {
		return false
	}
	end := e.end()
	w.Count, w.ID, w.Left, w.ExpiresAt = e.count+x.N, fixedID(e.start, e.meta), minus(end, now), ref.timeOf(int64(minus(end, ref.shift(a))))
	w.Refused, w.RetryAfter = false, 0
	return true
}
