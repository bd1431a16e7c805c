package postgresbackend

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/window"
)

const (
	// maxRows is how many rows a request has, unless a single call has more.
	maxRows = 256
	// maxRequests is how often a request is made that has certainly done nothing.
	maxRequests = 3
	// timeout bounds a request: it is a multiple of what any of them takes while the server works, also of the time
	// that it waits for the lock of a process that has stopped.
	timeout = 3 * time.Second
)

// newLane returns a batcher of requests that lock rows between the round trips, or do not. One is in flight at a
// time: of two, one would change the rows of the other.
func (b *Backend) newLane(locks bool) *batcher {
	return batch.New(batch.Options[id, call]{
		Send:    func(ctx context.Context, entries []*batched) { b.send(ctx, entries, locks) },
		Key:     func(c *call) (id, bool) { return c.parts[0].id, len(c.parts) == 1 },
		Size:    func(c *call) int { return len(c.parts) },
		MaxSize: maxRows, MaxInFlight: 1, MaxQueued: b.maxQueued,
	})
}

// bound calls f with a ctx that ends after the timeout, and when the backend is closed. It returns the error of ctx
// if that has ended, and otherwise that of f as one of a backend.
func (b *Backend) bound(ctx context.Context, f func(ctx context.Context) error) error {
	if b.life.Err() != nil { // AfterFunc may run its function too late for f
		return window.ErrClosed
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	err := f(bounded)
	if err != nil && ctx.Err() != nil && b.life.Err() == nil {
		return ctx.Err()
	}
	return b.storeError(err)
}

// send makes a request of calls, for a batcher.
func (b *Backend) send(ctx context.Context, entries []*batched, locks bool) {
	q := request{backend: b, entries: entries, rows: rowsOf(entries), locks: locks}
	err := b.bound(ctx, q.makeUntilDone)
	q.each(func(c *call) {
		if err != nil {
			c.err = err
			return
		}
		c.changed = !q.locks && c.parts[0].row.lost
	})
}

// request is a request.
type request struct {
	backend *Backend
	entries []*batched
	rows    []*row
	locks   bool
	undone  bool // nothing has been written
}

// each calls f with all calls.
func (q *request) each(f func(c *call)) {
	for _, e := range q.entries {
		for c := e; c != nil; c = c.Next {
			f(&c.Value)
		}
	}
}

// makeUntilDone makes the request, again if it has certainly done nothing.
func (q *request) makeUntilDone(ctx context.Context) (err error) {
	for range maxRequests {
		err = q.make(ctx)
		switch {
		case err == nil || !q.undone || ctx.Err() != nil || isReply(err) && !isConflict(err):
			return err
		case isConflict(err) && !q.locks: // others have changed one of the rows
			for _, r := range q.rows {
				r.lost = true
			}
			return nil
		}
	}
	return err
}

// make makes the request.
func (q *request) make(ctx context.Context) error {
	q.undone = true
	conn, err := q.backend.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes it if a transaction is open
	now, err := q.read(ctx, conn)
	if err == nil {
		for _, r := range q.rows {
			r.restart(now)
		}
		q.each(func(c *call) { c.decide(now) })
		err = q.write(ctx, conn)
		q.undone = isReply(err)
	}
	if hasCode(err, readOnly) { // another server may be at its address by now
		_ = conn.Conn().Close(ctx)
	}
	return err
}

// read reads the rows, and the time.
func (q *request) read(ctx context.Context, conn *pgxpool.Conn) (t algorithm.Time, err error) {
	b := q.backend
	keys, limits := make([][]byte, len(q.rows)), make([][]byte, len(q.rows))
	for i, r := range q.rows {
		keys[i] = []byte(r.key)
		limits[i] = []byte(r.limit)
	}
	var all pgx.Batch
	if q.locks {
		all.Queue(beginSQL)
		all.Queue(boundSQL)
		all.Queue(b.sql.lock, keys, limits)
	}
	all.Queue(b.sql.read, keys, limits).Query(func(found pgx.Rows) error {
		var state []byte
		var version, micros int64
		at := 0
		_, err := pgx.ForEachRow(found, []any{(*pgtype.DriverBytes)(&state), &version, &micros}, func() error {
			if at++; at > len(q.rows) {
				return errRows
			}
			q.rows[at-1].load(state, version)
			return nil
		})
		if err == nil && at < len(q.rows) {
			err = errRows
		}
		t = b.timeOf(micros)
		return err
	})
	return t, conn.SendBatch(ctx, &all).Close()
}

// timeOf returns the time of a request, of which the server has told its own, in microseconds since 1970.
func (b *Backend) timeOf(micros int64) algorithm.Time {
	now := time.UnixMicro(micros)
	if b.now != nil {
		now = b.now()
	}
	return algorithm.Time{Now: now.UnixNano(), Sec: now.Unix(), Nano: int64(now.Nanosecond())}
}

// write writes the rows that have changed, and finds out which others have changed meanwhile.
func (q *request) write(ctx context.Context, conn *pgxpool.Conn) error {
	b := q.backend
	changed := slices.DeleteFunc(slices.Clone(q.rows), func(r *row) bool { return !r.changed })
	var all pgx.Batch
	if len(changed) > 0 {
		if b.durability == Async {
			all.Queue(asyncSQL)
		}
		all.Queue(b.sql.write, arguments(changed)...).Query(func(written pgx.Rows) error {
			versions := make(map[int64]bool, len(changed))
			var version int64
			_, err := pgx.ForEachRow(written, []any{&version}, func() error {
				versions[version] = true
				return nil
			})
			for _, r := range changed {
				r.lost = !versions[r.version]
			}
			return err
		})
	}
	if q.locks {
		all.Queue(commitSQL)
	}
	if all.Len() == 0 {
		return nil
	}
	if err := conn.SendBatch(ctx, &all).Close(); err != nil {
		return err
	}
	if q.locks && slices.ContainsFunc(changed, func(r *row) bool { return r.lost }) {
		return errLock
	}
	return nil
}

// arguments returns those of writeSQL.
func arguments(rows []*row) []any {
	n := len(rows)
	keys, limits := make([][]byte, n), make([][]byte, n)
	states, ends := make([][]byte, n), make([]int64, n)
	versions, before := make([]int64, n), make([]int64, n)
	for i, r := range rows {
		r.version = 1 + rand.Int64N(1<<62)
		keys[i] = []byte(r.key)
		limits[i] = []byte(r.limit)
		ends[i] = r.ends
		versions[i] = r.version
		before[i] = r.before
		states[i] = r.record.AppendBinary([]byte{})
	}
	return []any{keys, limits, ends, versions, before, states}
}
