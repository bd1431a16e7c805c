package postgresbackend

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/algorithm"
)

// maxAttempts is how often a request is made that has certainly written nothing.
const maxAttempts = 3

// request is calls that share two round trips: one reads their rows, and the other writes those that they change.
type request struct {
	backend *Backend
	calls   []*call
	rows    []*row // of all calls, in the order of their ids
	locks   bool   // the rows are locked between the round trips
}

// run makes the request, again if its connection was lost before it can have written anything.
func (q *request) run(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		wrote, err := q.attempt(ctx)
		switch {
		case isConflict(err):
			return errConflict
		case err == nil, wrote, isReply(err), attempt == maxAttempts, ctx.Err() != nil:
			return err
		}
	}
}

// attempt makes the request once. It returns whether the second round trip has begun: if that fails without an answer,
// it is unknown whether the server has written the rows.
func (q *request) attempt(ctx context.Context) (wrote bool, err error) {
	conn, err := q.backend.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release() // closes it if a transaction is open
	now, err := q.read(ctx, conn)
	if err == nil {
		for _, c := range q.calls {
			c.decide(now)
		}
		wrote = true
		err = q.write(ctx, conn, now)
	}
	if hasCode(err, readOnly) { // another server may be at its address by now
		_ = conn.Conn().Close(ctx)
	}
	return wrote, err
}

// finish tells the calls how the request has ended.
func (q *request) finish(err error) {
	for _, c := range q.calls {
		switch {
		case err != nil:
			c.err = err
		case slices.ContainsFunc(c.parts, func(p part) bool { return p.row.conflict }):
			c.err = errConflict
		}
	}
}

// read makes the first round trip. It loads the rows, and returns the time.
func (q *request) read(ctx context.Context, conn *pgxpool.Conn) (t algorithm.Time, err error) {
	b := q.backend
	keys, limits := idColumns(q.rows)
	var all pgx.Batch
	if q.locks {
		all.Queue(beginSQL)
		all.Queue(boundSQL)
		all.Queue(b.sql.lock, keys, limits)
	}
	all.Queue(b.sql.read, keys, limits).Query(func(rows pgx.Rows) error {
		var state []byte
		var version, micros int64
		at := 0
		_, err := pgx.ForEachRow(rows, []any{(*pgtype.DriverBytes)(&state), &version, &micros}, func() error {
			t = b.timeOf(micros)
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
	b := q.backend
	changed := slices.DeleteFunc(slices.Clone(q.rows), func(r *row) bool { return !r.changed })
	var all pgx.Batch
	if len(changed) > 0 {
		if b.durability == Async {
			all.Queue(asyncSQL)
		}
		all.Queue(b.sql.write, columns(changed, t)...).Query(func(written pgx.Rows) error {
			versions, err := pgx.CollectRows(written, pgx.RowTo[int64])
			for _, r := range changed {
				r.conflict = !slices.Contains(versions, r.version)
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
