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

// method is a call of one window: what it does with the record.
type method uint8

const (
	hit method = iota
	take
	charge
	peek
	set
)

// methodTexts are the names of methods in errors.
var methodTexts = [...]string{hit: "hit", take: "take", charge: "charge", peek: "peek", set: "set"}

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
		if err == nil {
			x.describe(state, w)
			return nil
		}
	}
	return b.fail(methodTexts[m], key, err)
}

// GiveBack implements [window.Backend]. A count that is as large as possible stays as it is.
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64,
	id int64) (given bool, err error) {
	var x access
	if err := b.begin(ctx, &x, key, &l, n); err != nil {
		return false, b.fail("give back", key, err)
	}
	defer x.shard.mu.Unlock()
	return x.record != nil && x.algorithm.GiveBack(&x.record.Record, &x.rule, &x.at, id, n), nil
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

// do makes a call. A hit of a window is a charge: whether it is within the limit, the RateLimit says.
func (x *access) do(b *Backend, m method, l *window.Limit, n uint64) (algorithm.State, error) {
	switch {
	case m == peek:
		state := x.peek(n)
		if n > 0 && state.Wait == 0 && !x.makeRoom(b, l) {
			state = x.full(b, state.Left)
		}
		return state, nil
	case m == take, m == hit && x.algorithm.Rolling:
		return x.take(b, l, n), nil
	case m == hit && !x.open(b, l):
		return x.full(b, 0), nil
	case m == set && x.record != nil:
		x.record.End()
	}
	return x.charge(b, l, n)
}

// peek returns what take would if there is room, and changes nothing.
func (x *access) peek(n uint64) algorithm.State {
	scratch := &x.shard.scratch
	*scratch = algorithm.Record{}
	if x.record != nil {
		x.record.left(x.at) // if the clock has gone back, the record notices it now
		*scratch = x.record.Record
	}
	return x.algorithm.Peek(scratch, &x.rule, &x.at, n)
}

// take counts n if it fits.
func (x *access) take(b *Backend, l *window.Limit, n uint64) algorithm.State {
	if x.record == nil || x.algorithm.Logs {
		state := x.peek(n)
		if state.Wait > 0 || n == 0 {
			return state
		}
		if !x.open(b, l) {
			return x.full(b, state.Left)
		}
	}
	x.shard.series++
	return x.algorithm.Take(&x.record.Record, &x.rule, &x.at, n, x.shard.series)
}

// charge counts n, whatever the limit is.
func (x *access) charge(b *Backend, l *window.Limit, n uint64) (algorithm.State, error) {
	if x.algorithm.Logs {
		n = min(n, b.maxLog-min(b.maxLog, x.peek(0).Count))
	}
	if n == 0 && x.algorithm.Rolling {
		return x.peek(0), nil
	}
	if !x.open(b, l) {
		if x.record == nil && x.shard.records >= b.shardMax {
			return algorithm.State{}, b.errFull
		}
		return algorithm.State{}, b.errLogs
	}
	x.shard.series++
	return x.algorithm.Charge(&x.record.Record, &x.rule, &x.at, n, x.shard.series), nil
}

// open finds or makes the record in which the call counts, which has room in its log. It returns false if there is no
// room for the record or the log.
func (x *access) open(b *Backend, l *window.Limit) bool {
	ok := x.makeRoom(b, l)
	if ok {
		x.add(l)
	}
	return ok
}

// makeRoom removes records of which nothing counts, if there is no room for what the call adds. It does not look at all
// of them. It reports whether there is room.
func (x *access) makeRoom(b *Backend, l *window.Limit) bool {
	if x.fits(b) {
		return true
	}
	x.shard.sweep(x.at)
	x.record = x.shard.find(x.id, l) // it may be one of them
	return x.fits(b)
}

// fits reports whether there is room for what the call adds.
func (x *access) fits(b *Backend) bool {
	s := x.shard
	if x.record == nil && s.records >= b.shardMax {
		return false
	}
	more := x.times()
	return more == 0 || s.times+more <= b.shardTimes
}

// times returns for how many times the call adds room to the record's log, if it has one.
func (x *access) times() int {
	if !x.algorithm.Logs {
		return 0
	}
	var g *algorithm.Log
	if x.record != nil {
		g = x.record.Log
	}
	return g.Next() - g.Times()
}

// add makes the record, if there is none, and room in its log.
func (x *access) add(l *window.Limit) {
	x.shard.times += x.times()
	if x.record == nil {
		x.record = x.shard.insert(x.id, l)
	}
	if x.algorithm.Logs {
		x.record.Grow()
	}
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

// describe makes w, which is zero, describe the window after a call.
func (x *access) describe(s algorithm.State, w *window.Window) {
	w.Count = s.Count
	w.RetryAfter = s.Wait
	w.Refused = s.Wait > 0
	if s.Left > 0 {
		w.ID = s.ID
		w.Left = s.Left
		w.ExpiresAt = x.at.After(s.Left)
	}
}
