package memory

import (
	"context"
	"math"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Take implements [window.Taker]. Errors are those of [Backend.Hit].
func (b *Backend) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w window.Window, granted bool, err error) {
	if b.rolling {
		return b.hitRolling(ctx, "take", key, scale, limit, n)
	}
	limits := [1]window.Limit{{Key: key, Scale: scale, Limit: limit, N: n}}
	var windows [1]window.Window
	granted, err = b.TakeAll(ctx, limits[:], windows[:])
	return windows[0], granted, failed("take", key, err)
}

// TakeCount is [Backend.Take] for a caller that needs only the count, the time left and the end
// of the window, like [Backend.HitCount]. If the take is granted, left may be up to 0.1 s too
// long. With a rolling algorithm it is never too long. If the take is refused then, left is the
// RetryAfter of the window.
func (b *Backend) TakeCount(ctx context.Context, key string, scale time.Duration, limit, n uint64) (
	count uint64, left time.Duration, end time.Time, granted bool, err error) {
	if scale < window.MinScale {
		return 0, 0, end, false, failed("take", key, scaleError(scale))
	}
	if b.rolling {
		return b.takeCountRolling(ctx, key, scale, limit, n)
	}
	if err := ctx.Err(); err != nil {
		return 0, 0, end, false, failed("take", key, err)
	}
	s, k := b.locate(key, scale)
	s.mu.Lock() // unlocked without a defer, like in count
	var e entry
	r := s.find(k)
	if r != nil {
		e = r.entry()
	}
	now := s.hitTime(b, &e, limit, n)
	active := e.active(now)
	if !active {
		e.count = 0
	}
	granted = n <= limit && e.count <= limit-n
	switch {
	case s.closed:
		err = ErrClosed
	case !granted || n == 0:
	case active:
		e.add(n, now)
		r.set(e)
	default:
		e, err = b.open(s, k, r, n, now)
		active = true
	}
	if err != nil || !active {
		s.mu.Unlock()
		return 0, 0, end, granted && err == nil, failed("take", key, err)
	}
	ends := e.end()
	end = s.timeOf(ends)
	s.mu.Unlock()
	return e.count, minus(ends, now), end, granted, nil
}

// TakeAll implements [window.Taker]. It holds the mutexes of all shards of the windows at once.
// Errors are those of [Backend.Hit].
func (b *Backend) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (granted bool, err error) {
	return b.takeAll(ctx, limits, windows, false)
}

// TakeCounts is [Backend.TakeAll] for a caller that needs only the count, the time left, the end
// and the ID of each window.
func (b *Backend) TakeCounts(ctx context.Context, limits []window.Limit, windows []window.Window) (granted bool, err error) {
	return b.takeAll(ctx, limits, windows, true)
}

// takeAll makes all takes or none, and describes their windows.
func (b *Backend) takeAll(ctx context.Context, limits []window.Limit, windows []window.Window, brief bool) (granted bool, err error) {
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
	var few [4]taking
	all := few[:0]
	if len(limits) > len(few) {
		all = make([]taking, 0, len(limits))
	}
	all = all[:len(limits)]
	for i := range limits {
		all[i].shard, all[i].id = b.locate(limits[i].Key, limits[i].Scale)
	}
	var fewShards [len(few)]*shard
	shards := lockAll(fewShards[:0], all)
	if b.rolling {
		granted, err = b.rollAll(limits, all, windows)
	} else if granted, err = b.takeLocked(limits, all); err == nil {
		for i := range all {
			all[i].describe(&windows[i], brief)
		}
	}
	for _, s := range shards {
		s.mu.Unlock()
	}
	return granted, err
}

// taking is a take of several.
type taking struct {
	shard  *shard
	id     id
	record record // nil: none
	entry  entry  // of the active window; its scale is 0 if there is none
	opened bool   // the take has opened the window
	now    int64
}

// lockAll locks the shards of all takes, and appends each of them once to dst. All callers lock
// them in the same order, so that none waits for another that waits for it.
func lockAll(dst []*shard, all []taking) []*shard {
	for i := range all {
		s := all[i].shard
		at := len(dst)
		for at > 0 && dst[at-1].index > s.index {
			at--
		}
		if at > 0 && dst[at-1] == s {
			continue
		}
		dst = append(dst, s)
		copy(dst[at+1:], dst[at:])
		dst[at] = s
	}
	for _, s := range dst {
		s.mu.Lock()
	}
	return dst
}

// takeLocked makes all takes or none. The mutexes of all shards are held.
func (b *Backend) takeLocked(limits []window.Limit, all []taking) (granted bool, err error) {
	repeated := isRepeated(all)
	refresh := repeated // opening a window, too, can move the records of others
	granted = true
	for i := range all {
		t, l := &all[i], &limits[i]
		if t.shard.closed {
			return false, ErrClosed
		}
		n := l.N
		if repeated {
			n = window.Total(limits, i)
		}
		if !t.read(b, l.Limit, n) {
			granted = false
		}
		refresh = refresh || t.entry.scale == 0
	}
	if granted {
		if err := b.addAll(limits, all, refresh); err != nil {
			return false, err
		}
	}
	return granted, nil
}

// describe sets w to the state of the window of a take. If brief is true, it sets only what
// TakeCounts returns.
func (t *taking) describe(w *window.Window, brief bool) {
	switch {
	case t.entry.scale == 0:
		*w = window.Window{}
	case brief:
		ends := t.entry.end()
		w.Count, w.ID, w.Left, w.ExpiresAt = t.entry.count, t.entry.id(), minus(ends, t.now), t.shard.timeOf(ends)
	default:
		t.shard.describe(w, &t.entry, t.now)
	}
}

// isRepeated reports whether two takes are of the same window.
func isRepeated(all []taking) bool {
	for i := range all {
		for j := range i {
			a, b := &all[i].id, &all[j].id
			if a.hash == b.hash && a.scale == b.scale && a.key == b.key {
				return true
			}
		}
	}
	return false
}

// read finds the window of a take, and reports whether it has room for n.
func (t *taking) read(b *Backend, limit, n uint64) bool {
	t.record = t.shard.find(t.id)
	if t.record != nil {
		t.entry = t.record.entry()
	}
	t.now = t.shard.hitTime(b, &t.entry, limit, n)
	if t.record != nil && !t.entry.active(t.now) {
		t.entry = entry{}
	}
	return n <= limit && t.entry.count <= limit-n
}

// addAll counts all takes. It opens those windows that are not active. If there is no room for
// one of them, it counts nothing. It finds records again if refresh is true.
func (b *Backend) addAll(limits []window.Limit, all []taking, refresh bool) error {
	for i := range all {
		t, n := &all[i], limits[i].N
		if refresh {
			t.refresh()
		}
		switch {
		case n == 0:
		case t.entry.scale != 0:
			t.entry.add(n, t.now)
			t.record.set(t.entry)
		default:
			e, err := b.open(t.shard, t.id, t.record, n, t.now)
			if err != nil {
				undo(limits[:i], all[:i])
				return err
			}
			t.entry, t.opened = e, true
		}
	}
	if refresh {
		for i := range all {
			all[i].refresh()
		}
	}
	return nil
}

// refresh finds the window of a take again. It keeps a window that is not active.
func (t *taking) refresh() {
	if t.record = t.shard.find(t.id); t.record == nil {
		t.entry = entry{}
		return
	}
	if t.entry = t.record.entry(); !t.entry.active(t.now) {
		t.entry = entry{}
	}
}

// undo gives back what was taken, and removes the windows that were opened.
func undo(limits []window.Limit, all []taking) {
	for i := range all {
		t := &all[i]
		switch t.refresh(); {
		case t.entry.scale == 0: // it was removed to make room, or by an earlier step
		case t.opened:
			tab := t.shard.windows.forKey(t.id.key)
			tab.remove(tab.find(t.id))
		default:
			t.entry.count -= min(limits[i].N, t.entry.count)
			t.record.set(t.entry)
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
		return false, nil
	}
	e := r.entry()
	if e.id() != windowID || !e.active(s.now(b)) || e.count == math.MaxUint64 {
		return false, nil
	}
	e.count -= min(n, e.count)
	r.set(e)
	return true, nil
}
