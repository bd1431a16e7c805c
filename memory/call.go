package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"strconv"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// method is a call of one window: what it does with the record. Its text is its name in errors.
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

// Set implements [window.Backend]. If the key shares a count, Set only makes it larger: see [WithMaxKeys].
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
			x.describe(b, state, w)
			return nil
		}
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
	return x.record != nil && x.algorithm.GiveBack(&x.record.Record, x.time(), id, n), nil
}

// Reset implements [window.Backend]. If the key shares a count, the error matches [window.ErrFull]: see
// [WithMaxKeys].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	var x access
	err := b.begin(ctx, &x, key, &l, 0)
	if err == nil {
		if err = x.end(b); err == nil && x.record != nil {
			x.shard.ended(x.record)
		}
		x.shard.mu.Unlock()
	}
	return b.fail("reset", key, err)
}

// fail adds a call and its key to an error, and counts it unless it is a mistake in the program. It
// returns nil for nil.
func (b *Backend) fail(call, key string, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, window.ErrScale) && !errors.Is(err, window.ErrRange) && !errors.Is(err, window.ErrUnsupported) {
		b.failed.Add(1)
	}
	return &api.CallError{Package: "memory", Call: call, Key: key, Err: err}
}

// check returns the error of a call that must not be made.
func (b *Backend) check(ctx context.Context, l *window.Limit, n uint64) error {
	if err := limits.Check(l); err != nil {
		return err
	}
	if l.Max > b.maxLog && algorithm.Of(l.Algorithm).Logs {
		bound := fmt.Sprintf("at most %d with a %v", b.maxLog, l.Algorithm)
		return &window.RangeError{Field: "Max", Value: strconv.FormatUint(l.Max, 10), Bound: bound}
	}
	if err := limits.CheckNumber("N", n); err != nil {
		return err
	}
	return ctx.Err()
}

// access is the use of a record by a call. While record is used, the mutex of the shard is held. The limit of the
// call is not in it, but an argument, so that it need not be allocated.
type access struct {
	id
	shard     *shard
	algorithm *algorithm.Algorithm
	rule      algorithm.Rule
	calendar  *limits.Calendar
	at        instant
	table     *table  // that has the record: the shard's own, or its shared one
	record    *record // that counts for the key; nil: none
}

// shares reports whether the record is one that keys share.
func (x *access) shares() bool { return x.table == &x.shard.shared }

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
	x.find(b, l)
	return nil
}

// locate sets all but the time and the record. The time is read while the mutex is held: a call that has waited for
// the mutex would otherwise bring a time from before the record's window, which looks as if the clock had gone back.
func (x *access) locate(b *Backend, key string, l *window.Limit) {
	x.key, x.digest = storedKey(key)
	x.algorithm = algorithm.Of(l.Algorithm)
	x.rule = algorithm.RuleOf(l)
	if l.Calendar != 0 {
		x.calendar, _ = limits.CalendarOf(l)
	}
	hash := maphash.String(b.seed, x.key)
	x.shard = b.shardOf(hash)
	x.hash = b.mix(hash, l)
}

// storedKey returns what is stored of a key, and whether that is a digest.
func storedKey(key string) (stored string, digest bool) {
	if len(key) <= longestKey {
		return key, false
	}
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:]), true
}

// shardOf returns the shard of the hash of a key.
func (b *Backend) shardOf(hash uint64) *shard { return &b.shards[hash>>b.shift] }

// mix returns the hash of a key and limit. It is without the bits of that of the key that have selected the shard, and
// which all records of the shard have.
func (b *Backend) mix(hash uint64, l *window.Limit) uint64 {
	hash ^= (uint64(l.Scale)<<3 + uint64(l.Algorithm)) * 0x9e3779b97f4a7c15
	if l.Name != "" {
		hash ^= maphash.String(b.seed, l.Name)
	}
	if l.Calendar != 0 {
		of := limits.Identity(l)
		hash ^= bits.RotateLeft64(maphash.String(b.seed, of.Zone)+uint64(of.Calendar)<<8+uint64(of.StartDay), 32)
	}
	return hash << (64 - b.shift)
}

// do makes a call. A hit of a window is a charge: whether it is within the limit, the RateLimit says.
func (x *access) do(b *Backend, m method, l *window.Limit, n uint64) (algorithm.State, error) {
	switch {
	case m == peek:
		return x.peek(n), nil
	case m == take, m == hit && x.algorithm.Rolling:
		return x.take(b, l, n)
	case m == set:
		if x.end(b) != nil { // others count there, too, so the count only gets larger
			n -= min(n, x.peek(0).Count)
		}
	}
	return x.charge(b, l, n)
}

// by returns the numbers by which the record counts. Keys with other limits of the same name and scale may share a
// token bucket: it is refilled as slowly as for any of them.
func (x *access) by() algorithm.Rule {
	by := x.rule
	if x.shares() && x.record.kind == window.TokenBucket && !x.record.Empty() {
		by.Max = min(by.Max, x.record.Max)
	}
	return by
}

// time returns the time of the call.
func (x *access) time() algorithm.Time {
	t := x.at.of(x.algorithm)
	t.Calendar = x.calendar
	return t
}

// find finds the record that counts for the key.
func (x *access) find(b *Backend, l *window.Limit) {
	s := x.shard
	x.table = &s.own
	if x.record = s.own.find(x.id, l); x.record != nil || s.shared.len == 0 {
		return
	}
	r := s.shared.find(x.sharedID(b, l), l)
	if r == nil || r.left(x.at) <= 0 {
		return
	}
	x.record = r
	x.table = &s.shared
}

// sharedKey returns the key of the records that a key shares: a number.
func (b *Backend) sharedKey(key string) string {
	hash := bits.RotateLeft64(maphash.String(b.seed, key), 32) // its highest bits select the shard
	cell, _ := bits.Mul64(hash, uint64(b.sharedKeys))
	return strconv.FormatUint(cell, 10)
}

// sharedID returns the id of the record that the key shares.
func (x *access) sharedID(b *Backend, l *window.Limit) id {
	key := b.sharedKey(x.key)
	return id{hash: b.mix(maphash.String(b.seed, key), l), key: key}
}

// open finds or makes the record in which the call counts.
func (x *access) open(b *Backend, l *window.Limit) error {
	s := x.shard
	switch {
	case x.record == nil && s.own.hasRoom(x.at):
		x.record = s.own.insert(x.id, l)
	case x.record == nil:
		return x.share(b, l)
	case x.shares() && x.algorithm.Rolling && s.own.hasRoom(x.at) && s.logRoom(b, 0, x.record.Log.Times()):
		counted := &x.record.Record
		x.table = &s.own
		x.record = s.own.insert(x.id, l)
		s.series++
		x.record.Record = x.algorithm.Copy(counted, s.series)
		x.logGrew(0)
	}
	return nil
}

// share begins to count in the record that the key shares, which counts nothing yet.
func (x *access) share(b *Backend, l *window.Limit) error {
	t := &x.shard.shared
	k := x.sharedID(b, l)
	if x.record = t.find(k, l); x.record != nil {
		x.record.End() // it is over
	} else if t.hasRoom(x.at) {
		x.record = t.insert(k, l)
	} else {
		return b.errFull
	}
	x.table = t
	return nil
}

// peek returns what take would, and changes nothing.
func (x *access) peek(n uint64) algorithm.State {
	scratch := &x.shard.scratch
	*scratch = algorithm.Record{Rule: x.rule}
	if x.record != nil {
		x.record.left(x.at) // if the clock has gone back, the record notices it now
		*scratch = x.record.Record
	}
	return x.algorithm.Peek(scratch, x.by(), x.time(), n)
}

// take counts n if it fits.
func (x *access) take(b *Backend, l *window.Limit, n uint64) (algorithm.State, error) {
	if x.record == nil || x.shares() || x.algorithm.Logs {
		state := x.peek(n)
		if state.Wait > 0 || n == 0 {
			return state, nil
		}
		if err := x.open(b, l); err != nil {
			return state, err
		}
		if !x.logFits(b) {
			state.Wait = cmp.Or(state.Left, x.rule.Scale)
			return state, nil
		}
	}
	x.shard.series++
	before := x.record.Log.Times()
	state := x.algorithm.Take(&x.record.Record, x.by(), x.time(), n, x.shard.series)
	x.logGrew(before)
	return state, nil
}

// charge counts n, whatever the limit is.
func (x *access) charge(b *Backend, l *window.Limit, n uint64) (algorithm.State, error) {
	if x.algorithm.Logs {
		n = min(n, b.maxLog-min(b.maxLog, x.peek(0).Count))
	}
	if n == 0 && x.algorithm.Rolling {
		return x.peek(0), nil
	}
	if err := x.open(b, l); err != nil {
		return algorithm.State{}, err
	}
	if !x.logFits(b) {
		return algorithm.State{}, b.errLogs
	}
	x.shard.series++
	before := x.record.Log.Times()
	state := x.algorithm.Charge(&x.record.Record, x.by(), x.time(), n, x.shard.series)
	x.logGrew(before)
	return state, nil
}

// logGrew keeps account of the record's log, if it has one, which had room for so many times.
func (x *access) logGrew(before int) {
	if x.algorithm.Logs {
		x.table.times += x.record.Log.Times() - before
	}
}

// logFits reports whether there is room for another time in the record's log, if it has one.
func (x *access) logFits(b *Backend) bool {
	if !x.algorithm.Logs {
		return true
	}
	g := x.record.Log
	return g.Next() == g.Times() || x.shard.logRoom(b, g.Times(), g.Next())
}

// end ends what is counted for the key, unless that is shared: the error then matches [window.ErrFull].
func (x *access) end(b *Backend) error {
	if x.shares() {
		return b.errShared
	}
	if x.record != nil {
		x.record.End()
	}
	return nil
}

// describe makes w, which is zero, describe the window after a call.
func (x *access) describe(b *Backend, s algorithm.State, w *window.Window) {
	w.Count = s.Count
	w.RetryAfter = s.Wait
	w.Refused = s.Wait > 0
	if s.Left > 0 {
		w.ID = s.ID
		w.Left = s.Left
		w.ExpiresAt = b.clock.after(x.at, s.Left)
	}
}
