package memory

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"hash/maphash"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// method is a call of one window. Its text is its name in errors.
type method string

const (
	hit    method = "hit"
	take   method = "take"
	charge method = "charge"
	peek   method = "peek"
	set    method = "set"
)

// Hit implements [window.Backend]. Every hit of a fixed or aligned window is counted.
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, hit, key, &l, n, &w)
	return w, err
}

// Take implements [window.Backend].
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, take, key, &l, n, &w)
	return w, err
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, charge, key, &l, n, &w)
	return w, err
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, peek, key, &l, n, &w)
	return w, err
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.call(ctx, set, key, &l, n, &w)
	return w, err
}

// call makes a call of one window, and makes w describe that.
func (b *Backend) call(ctx context.Context, m method, key string, l *window.Limit, n uint64, w *window.Window) error {
	var x access
	err := b.begin(ctx, &x, key, l, n)
	if err == nil {
		var state algorithm.State
		state, err = x.do(b, m, l, n)
		x.shard.mu.Unlock()
		state.Describe(&x.at, w)
	}
	return b.fail(string(m), key, err)
}

// GiveBack implements [window.Backend]. A count that is as large as possible stays as it is.
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64,
	id int64) (given bool, err error) {
	var x access
	if err := b.begin(ctx, &x, key, &l, n); err != nil {
		return false, b.fail("give back", key, err)
	}
	defer x.shard.mu.Unlock()
	if x.record != nil {
		given = x.algorithm.GiveBack(&x.record.Record, &x.rule, &x.at, id, n)
		x.shard.removeEmpty(x.record)
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
	if x.record != nil {
		x.shard.remove(x.record)
	}
	return nil
}

// access is the use of a record by a call. While record is used, the mutex of the shard is held. The limit of the
// call is not in it, but an argument, so that it need not be allocated.
type access struct {
	id
	shard     *shard
	algorithm *algorithm.Algorithm
	rule      algorithm.Rule
	at        algorithm.Time
	record    *record // that counts for the key; nil: none
}

// begin begins a call, and locks the shard. If it returns an error, it does neither.
func (b *Backend) begin(ctx context.Context, x *access, key string, l *window.Limit, n uint64) error {
	if err := b.check(ctx, l, n); err != nil {
		return err
	}
	x.locate(b, key, l)
	x.shard.mu.Lock()
	if x.shard.closed {
		x.shard.mu.Unlock()
		return window.ErrClosed
	}
	x.at = b.clock.now()
	x.shard.calls++
	x.record = x.shard.find(x.id, l)
	return nil
}

// locate sets all but the time and the record. The time is read while the mutex is held: a call that has waited for
// the mutex would otherwise bring a time from before the record's window, which looks as if the clock had gone back.
func (x *access) locate(b *Backend, key string, l *window.Limit) {
	x.id = b.idOf(key)
	x.algorithm = algorithm.Of(l.Algorithm)
	x.rule = algorithm.RuleOf(l)
	x.shard = b.shardOf(x.id)
	x.hash ^= b.hash(l)
}

// idOf returns the id of a key, without a limit.
func (b *Backend) idOf(key string) id {
	digest := len(key) > longestKey
	if digest {
		sum := sha256.Sum256([]byte(key))
		key = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return id{hash: maphash.String(b.seed, key), key: key, digest: digest}
}

// shardOf returns the shard of a key: the lowest bits of its hash are the same for all records there.
func (b *Backend) shardOf(k id) *shard { return &b.shards[k.hash&uint64(len(b.shards)-1)] }

// hash returns a hash of what of a limit a record is for. Limits that differ only in their calendars have the same.
func (b *Backend) hash(l *window.Limit) uint64 {
	hash := (uint64(l.Scale)<<3 + uint64(l.Algorithm)) * golden
	if l.Name != "" {
		hash ^= maphash.String(b.seed, l.Name)
	}
	return hash
}

// golden is a factor that spreads numbers over all hashes, each to another one.
const golden = 0x9e3779b97f4a7c15

// do makes a call.
func (x *access) do(b *Backend, m method, l *window.Limit, n uint64) (algorithm.State, error) {
	if m == set && x.record != nil {
		x.record.End()
	}
	if m == peek || !x.fits(b) {
		state, adds := x.look(b, m, n)
		full := adds && !x.fits(b) && !x.makeRoom(b, l)
		switch {
		case full && (m == charge || m == set):
			return algorithm.State{}, b.errFull
		case full:
			return x.full(b, state.Left), nil
		case m == peek, !adds && x.record == nil:
			return state, nil
		}
	}
	if x.record == nil {
		x.record = x.shard.insert(x.id, l)
	}
	return x.count(b, m, n), nil
}

// look returns the state before a call, and whether the call would add to it. It drops what is over, which needs no room
// any more.
func (x *access) look(b *Backend, m method, n uint64) (state algorithm.State, adds bool) {
	switch {
	case m == charge, m == set:
		state = x.peek(0)
		adds = !x.algorithm.Rolling || n > 0 && !(x.algorithm.Logs && state.Count >= b.maxLog)
	case m == hit && !x.algorithm.Rolling:
		adds = true
	default:
		state = x.peek(n)
		adds = n > 0 && state.Wait == 0
	}
	return state, adds
}

// peek returns what a take would, and changes nothing.
func (x *access) peek(n uint64) algorithm.State {
	scratch := &x.shard.scratch
	*scratch = algorithm.Record{}
	if x.record != nil {
		x.algorithm.Restart(&x.record.Record, &x.rule, &x.at)
		*scratch = x.record.Record
	}
	return x.algorithm.Peek(scratch, &x.rule, &x.at, n)
}

// count makes a call that counts. A hit of a window is a charge: whether it is within the limit, the RateLimit says. A
// charge of a log counts no more than the largest limit.
func (x *access) count(b *Backend, m method, n uint64) (state algorithm.State) {
	r, s := &x.record.Record, x.shard
	s.series++
	times := r.Log.Times()
	switch {
	case m == take, m == hit && x.algorithm.Rolling:
		state = x.algorithm.Take(r, &x.rule, &x.at, n, s.series)
	case m == set:
		r.End()
		fallthrough
	default:
		if x.algorithm.Logs {
			n = min(n, b.maxLog-min(b.maxLog, x.algorithm.Peek(r, &x.rule, &x.at, 0).Count))
		}
		state = x.algorithm.Charge(r, &x.rule, &x.at, n, s.series)
	}
	s.times += r.Log.Times() - times
	s.removeEmpty(x.record)
	return state
}

// add makes the record, if there is none, and room in its log for a take. The caller knows that there is room.
func (x *access) add(l *window.Limit) {
	if x.record == nil {
		x.record = x.shard.insert(x.id, l)
	}
	if x.algorithm.Logs {
		times := x.record.Log.Times()
		x.record.Grow()
		x.shard.times += x.record.Log.Times() - times
	}
}

// fits reports whether there is room for what a call may add.
func (x *access) fits(b *Backend) bool {
	s := x.shard
	if x.record == nil && s.records >= b.shardMax {
		return false
	}
	if !x.algorithm.Logs {
		return true
	}
	var log *algorithm.Log
	if x.record != nil {
		log = x.record.Log
	}
	return s.times+log.Next()-log.Times() <= b.shardTimes
}

// makeRoom removes records of which nothing counts. It does not look at all of them. It reports whether there is room
// for what a call may add.
func (x *access) makeRoom(b *Backend, l *window.Limit) bool {
	x.shard.sweep(x.at)
	x.record = x.shard.find(x.id, l) // it may be one of them
	return x.fits(b)
}

// full returns the state of a call for which there is no room, of a window in which nothing counts after left: that of
// a limit that is used up, whose window is not known. The next cleaning makes room, or a call before.
func (x *access) full(b *Backend, left time.Duration) algorithm.State {
	wait := min(b.cleanPeriod, window.Never-1)
	if left > 0 {
		wait = min(wait, left)
	}
	return algorithm.State{Count: x.rule.Holds, Wait: wait}
}
