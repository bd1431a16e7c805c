package postgresbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
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
	// timeout bounds a call, and each request: it is a multiple of what a request takes while the server works, also of
	// the second that it may wait for the lock of a process that has stopped.
	timeout = 3 * time.Second
	// maxRows is how many rows a request has, unless a single call has more.
	maxRows = 256
	// maxAttempts is how often a call is made until it locks its row, and how often while it does, if it has conflicts. It
	// is also how often a request is made that has failed, if nothing was done.
	maxAttempts = 3
)

type (
	batched = batch.Call[call]
	// lane queues calls, and makes requests of them, one after the other: of two at a time, one would change the rows
	// of the other.
	lane = batch.Batcher[id, call]
)

// newLane returns a lane whose requests lock their rows, or do not.
func (b *Backend) newLane(locks bool) *lane {
	return batch.New(batch.Options[id, call]{
		Send: func(ctx context.Context, entries [][]*batched) {
			calls := slices.Concat(entries...)
			q := request{Backend: b, calls: calls, rows: rowsOf(calls), locks: locks}
			err := b.withConn(ctx, q.perform)
			for _, c := range calls {
				c.Value.err = cmp.Or(err, c.Value.rowError())
			}
		},
		// Calls for one row are an entry, so that a request has at most maxRows rows, for any number of calls.
		Key:     func(c *call) (id, bool) { return c.ops[0].id, len(c.ops) == 1 },
		Size:    func(c *call) int { return len(c.ops) },
		MaxSize: maxRows, MaxInFlight: 1, MaxQueued: cmp.Or(b.maxQueued, DefaultMaxQueued), Punctual: true,
	})
}

// submit has a call made, again if it has a conflict. A call with some conflicts, others for its key in the next
// second, and all with several ops are made in the locking lane: in the free one, their writes would wait for its
// locks to find a conflict. It returns when the timeout is over, however often the call is queued until then.
func (b *Backend) submit(ctx context.Context, made call) error {
	c := &batched{Value: made}
	bounded, cancel := b.bound(ctx)
	defer cancel()
	lockUntil := &b.lockUntil[maphash.String(b.seed, made.ops[0].key)%uint64(len(b.lockUntil))]
	for attempt := 1; ; attempt++ {
		to := b.free
		if len(made.ops) > 1 || lockUntil.Load() > time.Now().UnixNano() {
			to = b.locking
		}
		_, err := to.Do(bounded, c)
		if err == nil {
			err = c.Value.err
		}
		switch {
		case err == nil:
			return nil
		case err == bounded.Err():
			return cmp.Or(ctx.Err(), fmt.Errorf("%w: no answer within %v", window.ErrUnavailable, b.timeout))
		case !errors.Is(err, errConflict) || attempt == 2*maxAttempts:
			return err
		case attempt == maxAttempts:
			lockUntil.Store(time.Now().Add(time.Second).UnixNano())
		}
	}
}

// bound returns a ctx that ends when the timeout is over at the latest.
func (b *Backend) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= b.timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.timeout)
}

// request is calls that share two round trips: one reads their rows, and the other writes those that they change.
type request struct {
	*Backend
	calls []*batched
	rows  []*row // of all calls, in the order of their ids
	locks bool   // the rows are locked between the round trips
}

// perform makes the request. If its connection is lost in the second round trip, it is unknown whether the server has
// written the rows.
func (q *request) perform(ctx context.Context, conn *pgxpool.Conn) error {
	now, err := q.read(ctx, conn)
	if err != nil && conn.Conn().IsClosed() {
		return fmt.Errorf("%w: %w", errNothingDone, err)
	}
	if err != nil {
		return err
	}
	for _, c := range q.calls {
		if c.Value.rowError() == nil {
			c.Value.apply(c.Value.ops, now)
		}
	}
	return q.write(ctx, conn, now)
}

// read makes the first round trip. It loads the rows, and returns the time.
func (q *request) read(ctx context.Context, conn *pgxpool.Conn) (t algorithm.Time, err error) {
	ids := idColumns(q.rows)
	var all pgx.Batch
	if q.locks {
		all.Queue(beginSQL)
		all.Queue(boundSQL)
		all.Queue(q.sql(lockSQL), ids...)
	}
	all.Queue(q.readSQL, ids...).Query(func(rows pgx.Rows) error {
		var state []byte
		var version, micros int64
		at := 0
		_, err := pgx.ForEachRow(rows, []any{(*pgtype.DriverBytes)(&state), &version, &micros}, func() error {
			t = q.timeOf(micros)
			q.rows[at].load(state, version, t)
			at++
			return nil
		})
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
	return algorithm.At(now)
}

// write makes the second round trip, if it is needed. It writes the rows that the calls have changed, and finds those
// with a conflict.
func (q *request) write(ctx context.Context, conn *pgxpool.Conn, t algorithm.Time) error {
	changed := slices.DeleteFunc(slices.Clone(q.rows), func(r *row) bool { return !r.changed })
	var all pgx.Batch
	if len(changed) > 0 {
		all.Queue(q.writeSQL, columns(changed, t)...).Query(func(written pgx.Rows) error {
			versions, err := pgx.CollectRows(written, pgx.RowTo[int64])
			for _, r := range changed {
				if !slices.Contains(versions, r.version) {
					r.err = errConflict
				}
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
	return conn.SendBatch(ctx, &all).Close()
}
