package memory

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Take implements [window.Taker]. Errors are those of [Backend.Hit].
func (b *Backend) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w window.Window, granted bool, err error) {
	if b.rolling {
		return b.hitRolling(ctx, "take", key, scale, limit, n)
	}
	if err := check(ctx, scale); err != nil {
		return w, false, failed("take", key, err)
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now, granted, err := b.take(s, k, limit, n)
	if err == nil && e.scale != 0 {
		s.describe(&w, &e, now)
	}
	return w, granted, failed("take", key, err)
}

// TakeCount is [Backend.Take] for a caller that needs only the count, the time left and the end
// of the window, like [Backend.HitCount]. If the take is granted, left may be up to 0.1 s too
// long. With a rolling algorithm it is never too long. If the take is refused, wait is when it would be
// granted: left, or, with a rolling algorithm, the RetryAfter of the window.
func (b *Backend) TakeCount(ctx context.Context, key string, scale time.Duration, limit, n uint64) (
	count uint64, left, wait time.Duration, end time.Time, granted bool, err error) {
	if b.rolling {
		return b.takeCountRolling(ctx, key, scale, limit, n)
	}
	if err := check(ctx, scale); err != nil {
		return 0, 0, 0, end, false, failed("take", key, err)
	}
	s, k := b.locate(key, scale)
	s.mu.Lock() // unlocked without a defer, like in HitCount
	e, now, granted, err := b.take(s, k, limit, n)
	if err != nil || e.scale == 0 {
		s.mu.Unlock()
		return 0, 0, 0, end, granted, failed("take", key, err)
	}
	ends := e.end()
	end = s.timeOf(ends)
	s.mu.Unlock()
	left = minus(ends, now)
	if !granted {
		wait = left
	}
	return e.count, left, wait, end, granted, nil
}

// take takes n of a window if its count stays within limit. It returns the window, which has a
// scale of 0 if it is not active, and the time. The mutex is held.
func (b *Backend) take(s *shard, k id, limit, n uint64) (e entry, now int64, granted bool, err error) {
	r := s.find(k)
	if r == nil {
		k, r = s.findShared(b, k)
	}
	if r != nil {
		e = r.entry()
	}
	now = s.hitTime(b, &e, limit, n)
	if !e.active(now) {
		e = entry{}
	}
	granted = n <= limit && e.count <= limit-n
	switch {
	case s.closed:
		return e, now, false, ErrClosed
	case !granted || n == 0:
	case e.scale != 0:
		e.add(n, now)
		r.setCount(&e)
	default:
		e, err = b.open(s, k, r, n, now)
	}
	return e, now, granted && err == nil, err
}

// Taken is what [Backend.TakeCounts] returns of a window. It is zero if there is no window.
type Taken struct {
	Count uint64
	Left  time.Duration
	End   time.Time
}

// TakeCounts is [Backend.TakeAll] for a caller that needs only the count, the time left and the end
// of each fixed window. If the takes are granted, the time left may be up to 0.1 s too long. With a
// rolling algorithm, the error matches [errors.ErrUnsupported].
func (b *Backend) TakeCounts(ctx context.Context, limits []window.Limit, taken []Taken) (granted bool, err error) {
	if b.rolling {
		return false, errNotFixed
	}
	if len(limits) <= fewTakes && ctx.Err() == nil && b.takeFew(limits, taken) {
		return true, nil
	}
	return b.takeAll(ctx, limits, taken, nil)
}

// fewTakes is how many takes need no allocation.
const fewTakes = 4

// fewTaking is a take of few. If another one is refused, its record gets back what it had before.
type fewTaking struct {
	shard       *shard
	hash        uint32
	record      record
	meta, count uint64 // before
}

// takeFew makes a few takes if all windows are active, different and have room, as most are. It
// returns false, and changes nothing, if it can't: takeAll decides then. It looks at each window
// once, which takes a fifth less time than takeAll.
func (b *Backend) takeFew(limits []window.Limit, taken []Taken) bool {
	var few [fewTakes]fewTaking
	all := few[:len(limits)]
	var fewShards [fewTakes]*shard
	shards := fewShards[:0]
	for i := range all {
		l := &limits[i]
		if l.Scale < window.MinScale || len(l.Key) > maxKey {
			return false
		}
		s, k := b.locate(l.Key, l.Scale)
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
	for done < len(all) && all[done].take(b, &limits[done], &taken[done]) {
		done++
	}
	if done < len(all) {
		for i := range done {
			t := &all[i]
			t.record.setCount(&entry{meta: t.meta, count: t.count})
		}
	}
	for _, s := range shards {
		s.mu.Unlock()
	}
	return done == len(all)
}

// take makes a take if the window is active and has room. The mutex is held.
func (t *fewTaking) take(b *Backend, l *window.Limit, w *Taken) bool {
	s := t.shard
	t.record = s.find(id{l.Key, l.Scale, t.hash})
	if t.record == nil {
		return false
	}
	e := t.record.entry()
	if l.N > l.Limit || e.count > l.Limit-l.N {
		return false
	}
	now := s.hitTime(b, &e, l.Limit, l.N)
	if !e.active(now) {
		return false
	}
	t.meta, t.count = e.meta, e.count
	if l.N > 0 {
		e.add(l.N, now)
		t.record.setCount(&e)
	}
	ends := e.end()
	if ends != s.lastEnd.nanos { // timeOf would not be inlined
		s.timeOf(ends)
	}
	w.Count, w.Left, w.End = e.count, minus(ends, now), s.lastEnd.time
	return true
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

// TakeAll implements [window.Taker]. It holds the mutexes of all shards of the windows at once.
// Errors are those of [Backend.Hit].
func (b *Backend) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (granted bool, err error) {
	return b.takeAll(ctx, limits, nil, windows)
}

// takeAll makes all takes or none, and describes their windows in taken, or else in windows.
func (b *Backend) takeAll(ctx context.Context, limits []window.Limit, taken []Taken, windows []window.Window) (granted bool, err error) {
	if len(limits) == 0 {
		return true, nil
	}
	for i := range limits {
		if limits[i].Scale < window.MinScale {
			return false, scaleError(limits[i].Scale)
		}
		if err := b.checkLimit(limits[i].Limit); err != nil {
			return false, err
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	var few [fewTakes]taking
	all := few[:]
	if len(limits) > len(few) {
		all = make([]taking, len(limits))
	}
	all = all[:len(limits)]
	var fewShards [fewTakes]*shard
	shards := fewShards[:0]
	for i := range all {
		all[i].shard, all[i].id = b.locate(limits[i].Key, limits[i].Scale)
		shards = insertShard(shards, all[i].shard)
	}
	for _, s := range shards {
		s.mu.Lock()
	}
	for i := range all {
		all[i].refresh(b)
	}
	if isRepeated(all) {
		granted, err = b.takeSums(limits, all, taken, windows)
	} else {
		granted, err = b.takeLocked(limits, all, taken, windows)
	}
	for _, s := range shards {
		s.mu.Unlock()
	}
	return granted, err
}

// taking is a take of several.
type taking struct {
	shard  *shard
	id     id     // of the record that counts for the key
	record record // nil: none
	now    int64
	active bool  // the record has an active window
	opened bool  // the take has opened it
	entry  entry // before the take, with a rolling algorithm
}

// takeSums takes for limits of which some have the same record: the lowest of their limits applies to the
// sum. The mutexes of all shards are held.
func (b *Backend) takeSums(limits []window.Limit, all []taking, taken []Taken, windows []window.Window) (granted bool, err error) {
	var sums []window.Limit
	var distinct []taking
	at := make([]int, len(limits)) // the index in sums of each limit
	for i, l := range limits {
		at[i] = slices.IndexFunc(distinct, func(t taking) bool { return t.isSame(&all[i]) })
		if at[i] < 0 {
			at[i] = len(sums)
			sums, distinct = append(sums, l), append(distinct, all[i])
			continue
		}
		sum := &sums[at[i]]
		sum.Limit = min(sum.Limit, l.Limit)
		if sum.N += l.N; sum.N < l.N { // a sum that is too large is never granted
			sum.N, sum.Limit = math.MaxUint64, 0
		}
	}
	var ofTaken []Taken
	var ofWindows []window.Window
	if taken != nil {
		ofTaken = make([]Taken, len(sums))
	} else {
		ofWindows = make([]window.Window, len(sums))
	}
	granted, err = b.takeLocked(sums, distinct, ofTaken, ofWindows)
	for i := range limits {
		if taken != nil {
			taken[i] = ofTaken[at[i]]
		} else {
			windows[i] = ofWindows[at[i]]
		}
	}
	return granted, err
}

// takeLocked makes all takes or none, all of which have another record, and describes their windows. The
// mutexes of all shards are held.
func (b *Backend) takeLocked(limits []window.Limit, all []taking, taken []Taken, windows []window.Window) (granted bool, err error) {
	if b.rolling {
		return b.rollAll(limits, all, windows)
	}
	granted, added, err := b.takeFixed(limits, all)
	if err != nil {
		return false, err
	}
	for i := range all {
		t, n := &all[i], uint64(0)
		if granted && !added {
			n = limits[i].N
		}
		if taken != nil {
			t.count(n, &taken[i])
		} else {
			t.describe(n, &windows[i])
		}
	}
	return granted, nil
}

// takeFixed decides on all takes of fixed windows. If they are granted and a window has to be opened for
// one, it also makes them: then, the record of another one may move. The mutexes of all shards are held.
func (b *Backend) takeFixed(limits []window.Limit, all []taking) (granted, added bool, err error) {
	granted = true
	simple := true
	for i := range all {
		t, l := &all[i], &limits[i]
		if t.shard.closed {
			return false, false, ErrClosed
		}
		if !t.read(b, l.Limit, l.N) {
			granted = false
		}
		simple = simple && t.active
	}
	if !granted || simple {
		return granted, false, nil
	}
	granted, err = b.addAll(limits, all)
	return granted, granted, err
}

// count adds n to the window of a take, and makes w describe it.
func (t *taking) count(n uint64, w *Taken) {
	if !t.active {
		*w = Taken{}
		return
	}
	e := t.add(n)
	ends := e.end()
	t.shard.timeOf(ends)
	w.Count, w.Left, w.End = e.count, minus(ends, t.now), t.shard.lastEnd.time
}

// describe adds n to the window of a take, and makes w describe it.
func (t *taking) describe(n uint64, w *window.Window) {
	*w = window.Window{}
	if t.active {
		e := t.add(n)
		t.shard.describe(w, &e, t.now)
	}
}

// add adds n to the window of a take, and returns it.
func (t *taking) add(n uint64) entry {
	e := t.record.entry()
	if n > 0 {
		e.add(n, t.now)
		t.record.setCount(&e)
	}
	return e
}

// isRepeated reports whether two takes have the same record.
func isRepeated(all []taking) bool {
	for i := range all {
		for j := range i {
			if all[i].isSame(&all[j]) {
				return true
			}
		}
	}
	return false
}

// isSame reports whether two takes have the same record.
func (t *taking) isSame(u *taking) bool {
	return t.id.hash == u.id.hash && t.id.scale == u.id.scale && t.shard == u.shard && t.id.key == u.id.key
}

// read reads the window of a take, and reports whether it has room for n.
func (t *taking) read(b *Backend, limit, n uint64) bool {
	var e entry
	if t.record != nil {
		e = t.record.entry()
	}
	t.now = t.shard.hitTime(b, &e, limit, n)
	if t.active = e.active(t.now); !t.active {
		return n <= limit
	}
	return n <= limit && e.count <= limit-n
}

// addAll counts all takes. It opens those windows that are not active. If there is no room for one of
// them, it counts nothing. It returns false, and counts nothing, if a take is refused because the one
// before has opened the window that counts for the keys of both.
func (b *Backend) addAll(limits []window.Limit, all []taking) (granted bool, err error) {
	for i := range all {
		t, l := &all[i], &limits[i]
		t.refresh(b)
		switch fits := t.read(b, l.Limit, l.N); {
		case !fits:
			b.undo(limits[:i], all[:i])
			for i := range all {
				all[i].renew(b)
			}
			return false, nil
		case l.N == 0:
		case t.active:
			t.add(l.N)
		default:
			if _, err := b.open(t.shard, t.id, t.record, l.N, t.now); err != nil {
				b.undo(limits[:i], all[:i])
				return false, err
			}
			t.opened = true
		}
	}
	for i := range all {
		all[i].renew(b)
	}
	return true, nil
}

// refresh finds the record that counts for the key of a take.
func (t *taking) refresh(b *Backend) {
	if t.record = t.shard.find(t.id); t.record == nil && !t.id.shared() {
		t.id, t.record = t.shard.findShared(b, t.id)
	}
}

// renew finds the window of a take again.
func (t *taking) renew(b *Backend) {
	t.refresh(b)
	t.active = false
	if t.record != nil {
		e := t.record.entry()
		t.active = e.active(t.now)
	}
}

// undo gives back what was taken, and removes the windows that were opened.
func (b *Backend) undo(limits []window.Limit, all []taking) {
	for i := len(all) - 1; i >= 0; i-- {
		t := &all[i]
		switch t.renew(b); {
		case !t.active || limits[i].N == 0: // it was removed to make room
		case t.opened:
			tab := t.shard.windows.forKey(t.id.key)
			tab.remove(tab.find(t.id))
		default:
			e := t.record.entry()
			e.count -= min(limits[i].N, e.count)
			t.record.setCount(&e)
		}
	}
}

// GiveBack implements [window.Taker]. Errors are those of [Backend.Get]. A count that was too large
// for a uint64 stays as it is.
func (b *Backend) GiveBack(ctx context.Context, key string, scale time.Duration, windowID int64, n uint64) (bool, error) {
	if err := check(ctx, scale); err != nil {
		return false, failed("give back", key, err)
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.rolling {
		ok, err := b.giveBackRolling(s, k, windowID, n)
		return ok, failed("give back", key, err)
	}
	if s.closed {
		return false, failed("give back", key, ErrClosed)
	}
	r := s.find(k)
	if r == nil {
		if _, r = s.findShared(b, k); r == nil {
			return false, nil
		}
	}
	e := r.entry()
	if e.id() != windowID || !e.active(s.now(b)) || e.count == math.MaxUint64 {
		return false, nil
	}
	e.count -= min(n, e.count)
	r.setCount(&e)
	return true, nil
}
