package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"hash/maphash"
	"math/bits"
	"strconv"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// access is the use of a record by a call. While record is used, the mutex of the shard is held.
type access struct {
	id
	shard     *shard
	algorithm *algorithm.Algorithm
	rule      algorithm.Rule
	calendar  *limits.Calendar
	at        instant
	record    *record // that counts for the key; nil: none
	shares    bool    // it is a shared one
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
	x.find(b)
	return nil
}

// locate sets all but the time and the record. The time is read while the mutex is held: a call that has waited for the mutex
// would otherwise bring a time from before the record's window, which looks as if the clock had gone back.
func (x *access) locate(b *Backend, key string, l *window.Limit) {
	x.key, x.digest = storedKey(key)
	x.name = l.Name
	x.scale = l.Scale
	x.kind = l.Algorithm
	x.algorithm = algorithm.Of(l.Algorithm)
	x.rule = algorithm.RuleOf(l)
	if l.Calendar != 0 {
		of := limits.Identity(l)
		x.unit = of.Calendar
		x.startDay = of.StartDay
		x.zone = of.Zone
		x.calendar, _ = limits.CalendarOf(l)
	}
	hash := maphash.String(b.seed, x.key)
	x.shard = b.shardOf(hash)
	x.hash = b.mix(hash, &x.id)
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

// mix returns the hash of an id whose key has a hash.
func (b *Backend) mix(hash uint64, k *id) uint64 {
	hash ^= (uint64(k.scale)<<3 + uint64(k.kind)) * 0x9e3779b97f4a7c15
	if k.name != "" {
		hash ^= maphash.String(b.seed, k.name)
	}
	if k.unit != 0 {
		hash ^= bits.RotateLeft64(maphash.String(b.seed, k.zone)+uint64(k.unit)<<8+uint64(k.startDay), 32)
	}
	return hash
}

// do makes a call.
func (x *access) do(b *Backend, op operation, n uint64) (algorithm.State, error) {
	switch {
	case op == peek:
		return x.peek(n), nil
	case op == take, op == hit && x.algorithm.Rolling:
		return x.take(b, n)
	case op == set && x.end(b) != nil: // others count there, too, so the count only gets larger
		n -= min(n, x.peek(0).Count)
	}
	return x.charge(b, n)
}

// by returns the numbers by which the record counts. Keys with other limits of the same name and scale may share a token
// bucket: it is refilled as slowly as for any of them.
func (x *access) by() algorithm.Rule {
	by := x.rule
	if x.shares && x.kind == window.TokenBucket && !x.record.Empty() {
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
func (x *access) find(b *Backend) {
	s := x.shard
	x.shares = false
	if x.record = s.own.find(&x.id); x.record != nil || len(s.shared.list) == 0 {
		return
	}
	k := x.sharedID(b)
	r := s.shared.find(&k)
	if r == nil || r.left(x.at) <= 0 {
		return
	}
	x.record = r
	x.shares = true
}

// sharedKey returns the key of the records that a key shares: a number.
func (b *Backend) sharedKey(key string) string {
	hash := bits.RotateLeft64(maphash.String(b.seed, key), 32) // its highest bits select the shard
	cell, _ := bits.Mul64(hash, uint64(b.sharedKeys))
	return strconv.FormatUint(cell, 10)
}

// sharedID returns the id of the record that the key shares.
func (x *access) sharedID(b *Backend) id {
	k := x.id
	k.key = b.sharedKey(x.key)
	k.digest = false
	k.hash = b.mix(maphash.String(b.seed, k.key), &k)
	return k
}

// open finds or makes the record in which the call counts.
func (x *access) open(b *Backend) error {
	s := x.shard
	switch {
	case x.record == nil && s.hasRoom(b, x.at):
		x.record = s.own.insert(&x.id)
	case x.record == nil:
		k := x.sharedID(b)
		if x.record = s.shared.find(&k); x.record != nil {
			x.record.End() // it is over
		} else if s.sharedRoom(b, x.at) {
			x.record = s.shared.insert(&k)
		} else {
			return b.errFull
		}
		x.shares = true
	case x.shares && x.algorithm.Rolling && s.hasRoom(b, x.at) && s.logRoom(b, 0, x.record.Log.Times()):
		counted := &x.record.Record
		x.record = s.own.insert(&x.id)
		s.series++
		x.record.Record = x.algorithm.Copy(counted, s.series)
		s.own.times += x.record.Log.Times()
		x.shares = false
	}
	return nil
}

// table returns the table of the record.
func (x *access) table() *table {
	if x.shares {
		return &x.shard.shared
	}
	return &x.shard.own
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
func (x *access) take(b *Backend, n uint64) (algorithm.State, error) {
	if x.record == nil || x.shares || x.algorithm.Logs {
		state := x.peek(n)
		if state.Wait > 0 || n == 0 {
			return state, nil
		}
		if err := x.open(b); err != nil {
			return state, err
		}
		if !x.logFits(b) {
			state.Wait = cmp.Or(state.Left, x.scale)
			return state, nil
		}
	}
	x.shard.series++
	before := x.record.Log.Times()
	state := x.algorithm.Take(&x.record.Record, x.by(), x.time(), n, x.shard.series)
	x.table().times += x.record.Log.Times() - before
	return state, nil
}

// charge counts n, whatever the limit is.
func (x *access) charge(b *Backend, n uint64) (algorithm.State, error) {
	if x.algorithm.Logs {
		n = min(n, b.maxLog-min(b.maxLog, x.peek(0).Count))
	}
	if n == 0 && x.algorithm.Rolling {
		return x.peek(0), nil
	}
	if err := x.open(b); err != nil {
		return algorithm.State{}, err
	}
	if !x.logFits(b) {
		return algorithm.State{}, b.errLogs
	}
	x.shard.series++
	before := x.record.Log.Times()
	state := x.algorithm.Charge(&x.record.Record, x.by(), x.time(), n, x.shard.series)
	x.table().times += x.record.Log.Times() - before
	return state, nil
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
	if x.shares {
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
