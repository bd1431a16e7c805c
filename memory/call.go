package memory

import (
	"context"
	"slices"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Hit implements [window.Backend]. Every hit of a fixed or aligned window is counted.
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Hit, key, &l, n, &w)
	return w, err
}

// Take implements [window.Backend].
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Take, key, &l, n, &w)
	return w, err
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Charge, key, &l, n, &w)
	return w, err
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Peek, key, &l, n, &w)
	return w, err
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, algorithm.Set, key, &l, n, &w)
	return w, err
}

// call makes a call of one window, and makes w describe that.
func (b *Backend) call(ctx context.Context, v algorithm.Verb, key string, l *window.Limit, n uint64,
	w *window.Window) error {
	var x access
	if err := b.begin(ctx, &x, key, l, n); err != nil {
		return b.fail(v.String(), key, err)
	}
	state := x.apply(v, l, n)
	if state.Wait == algorithm.NoRoom {
		x.shard.sweep(x.at)
		x.row = x.shard.find(x.hash, &x.id, l) // it may have been over
		state = x.apply(v, l, n)
	}
	x.shard.mu.Unlock()
	if state.Wait == algorithm.NoRoom && (v == algorithm.Charge || v == algorithm.Set) {
		return b.fail(v.String(), key, b.errFull)
	}
	x.describe(b, state, w)
	return nil
}

// GiveBack implements [window.Backend]. A count that is as large as possible stays as it is.
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64,
	id int64) (given bool, err error) {
	var x access
	if err := b.begin(ctx, &x, key, &l, n); err != nil {
		return false, b.fail("give back", key, err)
	}
	defer x.shard.mu.Unlock()
	if x.row != nil {
		given = x.rule.GiveBack(&x.row.Record, x.at, id, n)
		x.removeEmpty()
	}
	return given, nil
}

// Reset implements [window.Backend].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	var x access
	if err := b.begin(ctx, &x, key, &l, 0); err != nil {
		return b.fail("reset", key, err)
	}
	defer x.shard.mu.Unlock()
	if x.row != nil {
		x.shard.remove(x.row)
	}
	return nil
}

// access is the use of a row by a call. While row is used, the mutex of the shard is held. The limit of the
// call is not in it, but an argument, so that it need not be allocated.
type access struct {
	id
	hash  uint64 // of the key and the limit
	shard *shard
	rule  algorithm.Rule
	at    algorithm.Time
	row   *row // that counts for the key; nil: none
}

// begin begins a call, and locks the shard. If it returns an error, it does neither. The time is read while the mutex
// is held: a call that has waited for the mutex would otherwise bring a time from before the record's window, which
// looks as if the clock had gone back.
func (b *Backend) begin(ctx context.Context, x *access, key string, l *window.Limit, n uint64) error {
	if err := b.check(ctx, l, n); err != nil {
		return err
	}
	b.locate(x, key, l)
	x.shard.mu.Lock()
	if x.shard.closed {
		x.shard.mu.Unlock()
		return window.ErrClosed
	}
	x.shard.calls++
	x.at = b.clock.now()
	x.row = x.shard.find(x.hash, &x.id, l)
	return nil
}

// check returns the error of a call that must not be made.
func (b *Backend) check(ctx context.Context, l *window.Limit, n uint64) error {
	if err := algorithm.Check(l, n, b.maxLog); err != nil {
		return err
	}
	return ctx.Err()
}

// locate sets what an access has before the mutex of its shard is held.
func (b *Backend) locate(x *access, key string, l *window.Limit) {
	x.id = b.idOf(key)
	x.shard = b.shardOf(x.keyHash)
	x.hash = x.keyHash ^ b.hashOf(l)
	x.rule.SetLimit(l)
	x.rule.MaxLog = b.maxLog
}

// apply applies the rule to the record, or to a new one, if there is room for what that counts. A Peek changes nothing.
func (x *access) apply(v algorithm.Verb, l *window.Limit, n uint64) algorithm.State {
	s := x.shard
	s.series++
	x.rule.Room = s.maxTimes - s.times
	x.rule.NoRecord = x.row == nil && s.count >= s.maxCount
	switch {
	case x.row == nil:
		return x.applyToNew(v, l, n)
	case v == algorithm.Peek:
		x.rule.Restart(&x.row.Record, x.at)
		s.scratch = x.row.Record
		return x.rule.Peek(&s.scratch, x.at, n)
	}
	times := x.row.Log.Times()
	state := x.rule.Call(v, &x.row.Record, x.at, n, s.series)
	s.times += x.row.Log.Times() - times
	x.removeEmpty()
	return state
}

// applyToNew applies the rule to a record that the shard keeps if it counts something.
func (x *access) applyToNew(v algorithm.Verb, l *window.Limit, n uint64) algorithm.State {
	s := x.shard
	s.scratch = algorithm.Record{}
	state := x.rule.Call(v, &s.scratch, x.at, n, s.series)
	if !s.scratch.Empty() {
		s.insert(x.hash, &x.id, l, &s.scratch)
	}
	return state
}

// removeEmpty removes the record if it counts nothing.
func (x *access) removeEmpty() {
	if x.row.Empty() {
		x.shard.remove(x.row)
	}
}

// describe makes w, which is zero, the window of a state. Without room for the call, it is that of a limit that is used
// up, whose window is not known: the next cleaning makes room, or a call before, or the end of what is in a log.
func (x *access) describe(b *Backend, s algorithm.State, w *window.Window) {
	if s.Wait == algorithm.NoRoom {
		wait := min(b.cleanPeriod, window.Never-1)
		if s.Left > 0 {
			wait = min(wait, s.Left)
		}
		s = algorithm.State{Count: x.rule.Holds, Wait: wait}
	}
	s.Describe(w, x.at)
}

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
		b.locate(&all[i], takes[i].Key, &takes[i].Limit)
		shards = append(shards, all[i].shard)
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
			windows[i] = all[i].apply(algorithm.Take, &takes[i].Limit, takes[i].N).Window(at)
		}
	}
	return granted, nil
}

// peekAll reports whether all takes would be granted, and makes windows describe what each would return. Full reports
// that all are within their limits, and there is no room for all of them.
func (b *Backend) peekAll(takes []window.Take, all []access, windows []window.Window,
	at algorithm.Time) (granted, full bool) {
	granted = true
	limited := false
	for i := range all {
		x := &all[i]
		x.at = at
		x.row = x.shard.find(x.hash, &x.id, &takes[i].Limit)
		state := x.apply(algorithm.Peek, &takes[i].Limit, takes[i].N)
		full = full || state.Wait == algorithm.NoRoom
		limited = limited || state.Wait > 0
		fits := state.Wait == 0
		granted = granted && fits
		windows[i] = window.Window{}
		x.describe(b, state, &windows[i])
		if fits && takes[i].N > 0 {
			x.reserve(1)
		}
	}
	for i := range all {
		if !windows[i].Refused && takes[i].N > 0 {
			all[i].reserve(-1)
		}
	}
	return granted, full && !limited
}

// reserve has a shard count what a take will add to it, so that its room is none for the next take, or not any more.
func (x *access) reserve(sign int) {
	var log *algorithm.Log
	if x.row != nil {
		log = x.row.Log
	} else {
		x.shard.count += sign
	}
	if x.rule.How.Logs {
		x.shard.times += sign * log.Needs()
	}
}
