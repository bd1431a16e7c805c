package postgresbackend

import (
	"bytes"
	"context"
	"hash/maphash"
	"iter"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// Backend is a [window.Backend] on PostgreSQL. Make one with [New].
//
// It keeps all algorithms. A sliding log has a Max of at most [MaxLog]. It keeps no places in flight: Exchange returns
// [window.ErrUnsupported].
type Backend struct {
	window.Unimplemented
	options
	pool     *pgxpool.Pool
	owned    bool   // the pool ends with the backend
	readSQL  string // for the table, as is writeSQL
	writeSQL string
	free     *lane // requests lock nothing between their round trips
	locking  *lane // requests lock their rows

	seed      maphash.Seed
	lockUntil [1024]atomic.Int64 // until when calls for keys with that hash lock, in nanoseconds since 1970
	nextSweep atomic.Int64       // in nanoseconds since 1970
	stats     outage.Calls
	life      context.Context // ends with the backend
	end       context.CancelFunc
}

// New returns a backend that keeps its windows in the database of a pool, in a table that must be there: see
// [Schema]. It uses two connections at most, three while it deletes rows. The caller still owns the pool, may use it
// for other things, and closes it. New panics if pool or an option is nil.
func New(pool *pgxpool.Pool, opts ...Option) *Backend {
	if pool == nil {
		panic("postgresbackend: New: pool is nil")
	}
	b := &Backend{options: newOptions("New", opts), pool: pool, seed: maphash.MakeSeed()}
	b.readSQL = b.sql(readSQL)
	b.writeSQL = b.writing()
	b.free = b.newLane(false)
	b.locking = b.newLane(true)
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// Check implements [window.Backend].
func (b *Backend) Check(l window.Limit) (window.Traits, error) {
	traits, err := algorithm.Traits(&l, MaxLog)
	if err != nil {
		err = &api.CallError{Package: "postgresbackend", Err: err}
	}
	return traits, err
}

// Hit implements [window.Backend]. Every hit of a fixed or aligned window is counted.
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.window(ctx, algorithm.Hit, key, &l, n)
}

// Take implements [window.Backend].
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.window(ctx, algorithm.Take, key, &l, n)
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.window(ctx, algorithm.Charge, key, &l, n)
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.window(ctx, algorithm.Peek, key, &l, n)
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.window(ctx, algorithm.Set, key, &l, n)
}

// window makes a call for a key and limit, and returns its window.
func (b *Backend) window(ctx context.Context, v algorithm.Verb, key string, l *window.Limit,
	n uint64) (window.Window, error) {
	return b.callOne(ctx, v.String(), key, l, n, func(ops []op, t algorithm.Time) { ops[0].decide(v, t) })
}

// callOne makes a call for a key and limit, and returns its window if it has one. What the call is for, apply does.
func (b *Backend) callOne(ctx context.Context, method, key string, l *window.Limit, n uint64,
	apply func(ops []op, t algorithm.Time)) (window.Window, error) {
	if err := algorithm.Check(l, n, MaxLog); err != nil {
		return window.Window{}, b.after(method, key, err)
	}
	ops := []op{newOp(key, l, n)}
	if err := b.submit(ctx, call{apply: apply, ops: ops}); err != nil {
		return window.Window{}, b.after(method, key, err)
	}
	return ops[0].window, b.after(method, key, nil)
}

// GiveBack implements [window.Backend]. A count that is as large as possible stays as it is.
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (bool, error) {
	given := false
	_, err := b.callOne(ctx, "give back", key, &l, n, func(ops []op, t algorithm.Time) {
		r := ops[0].row
		given = ops[0].rule.GiveBack(&r.record, t, id, n)
		r.changed = r.changed || given
	})
	return err == nil && given, err // after an error, the request may still set given
}

// Reset implements [window.Backend].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	_, err := b.callOne(ctx, "reset", key, &l, 0, func(ops []op, _ algorithm.Time) {
		r := ops[0].row
		r.changed = r.changed || !r.record.Empty()
		r.record.End()
	})
	return err
}

// Delete implements [window.Backend] in one statement.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	var numbers []int64 // of the scales: a time.Duration is an interval to pgx
	for _, scale := range scales {
		if err := limits.CheckScale(scale); err != nil {
			return 0, b.after("delete", key, err)
		}
		numbers = append(numbers, int64(scale))
	}
	err = b.send(ctx, func(all *pgx.Batch) {
		all.Queue(beginSQL)
		if b.durability == Async {
			all.Queue(asyncSQL)
		}
		all.Queue(b.sql(deleteSQL), []byte(storedKey(key)), numbers).Query(func(rows pgx.Rows) error {
			n = 0 // of an attempt before
			var ends, micros int64
			_, err := pgx.ForEachRow(rows, []any{&ends, &micros}, func() error {
				if ends > b.timeOf(micros).Now {
					n++
				}
				return nil
			})
			return err
		})
		all.Queue(commitSQL)
	})
	return n, b.after("delete", key, err)
}

// TakeAll implements [window.Backend] in one transaction. Takes of one count lock nothing.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	check := func(t *window.Take) error { return algorithm.Check(&t.Limit, t.N, MaxLog) }
	granted, key, err := limits.TakeAll(ctx, takes, windows, check, b.takeAll)
	return granted, b.after("take", key, err)
}

// takeAll makes takes of different counts, all or none.
func (b *Backend) takeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	ops := make([]op, len(takes))
	for i := range takes {
		ops[i] = newOp(takes[i].Key, &takes[i].Limit, takes[i].N)
	}
	if err := b.submit(ctx, call{apply: takeOps, ops: ops}); err != nil {
		return false, err
	}
	granted = true
	for i := range windows {
		windows[i] = ops[i].window
		granted = granted && !windows[i].Refused
	}
	return granted, nil
}

// Ping implements [window.BackendCloser]. It makes a request that changes nothing, and needs all permissions that
// others need.
func (b *Backend) Ping(ctx context.Context) error {
	return b.after("ping", "", b.ping(ctx))
}

// Stats implements [window.BackendCloser]. The name of the store is the address of the server.
func (b *Backend) Stats() window.Stats {
	to := b.pool.Config().ConnConfig
	name := net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
	return window.Stats{Stores: []window.StoreStats{b.stats.Stats(name)}}
}

// Close ends the backend, and what it has under way: such calls, and further ones, fail with an error that matches
// [window.ErrClosed]. It does not close the pool, which the caller of [New] owns. It always returns nil, and can be
// called more than once. The pool of a backend that Open has made is closed too: Close waits for its connections for
// three seconds at most.
func (b *Backend) Close() error {
	b.end()
	if b.owned {
		api.Close(b.pool.Close)
	}
	return nil
}

// after is called after each call: it counts the call, has rows deleted if that is due, and adds the method and the
// key, cut to 64 characters, to its error. It returns nil for nil.
func (b *Backend) after(method, key string, err error) error {
	b.stats.Count(err)
	if err == nil {
		b.sweepIfDue()
		return nil
	}
	return &api.CallError{Package: "postgresbackend", Call: method, Key: key, Err: err}
}

// List implements [window.Backend]. It reads 256 rows at a time, in the order of their keys. The error of a row that
// can't be read follows the others.
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		var key []byte // of the row with the error
		var failed error
		for spans := spansOf(keys); len(spans) > 0; {
			var page []found
			s := &spans[0]
			err := b.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
				rows, _ := conn.Query(ctx, b.sql(listSQL), s.key, s.lim, s.last, int64(maxRows))
				page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[found])
				return err
			})
			if err != nil {
				key, failed = nil, err
				break
			}
			for _, f := range page {
				l, err := b.listed(f)
				if err != nil {
					key, failed = f.Key, err
				} else if l.Window.Left > 0 && !yield(l, nil) {
					_ = b.after("list", "", nil)
					return
				}
				s.key = f.Key
				s.lim = f.Lim
			}
			if len(page) < maxRows {
				spans = spans[1:]
			}
		}
		if err := b.after("list", string(key), failed); err != nil {
			yield(window.Listed{}, err)
		}
	}
}

// span is the rows after a key and lim, up to the last key.
type span struct{ key, lim, last []byte }

// spansOf returns the rows of some keys, or those of all: no key that is stored has as many bytes as the last one.
func spansOf(keys []string) (spans []span) {
	if len(keys) == 0 {
		return []span{{key: []byte{}, lim: []byte{}, last: bytes.Repeat([]byte{0xff}, longestKey+2)}}
	}
	for _, key := range keys {
		stored := []byte(storedKey(key))
		spans = append(spans, span{key: stored, lim: []byte{}, last: stored})
	}
	return spans
}

// found is a row as listSQL returns it.
type found struct {
	Key, Lim, State []byte
	Micros          int64
}

// listed describes what is counted.
func (b *Backend) listed(f found) (window.Listed, error) {
	l, err := windowLimit(f.Lim)
	if err != nil {
		return window.Listed{}, unreadable(err)
	}
	record, err := algorithm.Of(l.Algorithm).ReadBinary(f.State)
	if err != nil {
		return window.Listed{}, unreadable(err)
	}
	return algorithm.Listed(string(f.Key), len(f.Key) > longestKey, l, &record, b.timeOf(f.Micros)), nil
}
