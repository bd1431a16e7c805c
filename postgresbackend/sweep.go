package postgresbackend

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// sweepPeriod is the time between two sweeps, of whichever process.
	sweepPeriod = time.Minute
	// sweepPages is how many pages of the table are swept in a transaction.
	sweepPages = 256

	// dueToSweepSQL changes a row if a sweep is due, and then none for a minute. That has the empty key and lim, which
	// no count has.
	dueToSweepSQL = `INSERT INTO %s AS t (key, lim, ends, version, before, state)
SELECT '', '', now + 60000000000, 0, 0, '' FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS now) AS n
ON CONFLICT (key, lim) DO UPDATE SET ends = excluded.ends WHERE t.ends <= excluded.ends - 60000000000`

	pagesSQL = `SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint`

	// sweepSQL deletes what has ended a minute ago, in a range of pages. No request takes that long: nobody has read
	// such a row as one that has not ended, and is about to write it.
	sweepSQL = `DELETE FROM %[1]s AS t USING (
	SELECT ctid FROM %[1]s WHERE ctid >= $1::tid AND ctid < $2::tid AND ends < ((extract(epoch FROM clock_timestamp()) - 60) * 1000000)::bigint * 1000
	FOR UPDATE SKIP LOCKED
) AS o WHERE t.ctid = o.ctid`
)

// sweepIfDue has rows deleted that are over, unless it was done in the last minute. It is called after calls, so that a
// backend that is not used does nothing.
func (b *Backend) sweepIfDue() {
	now := time.Now().UnixNano()
	next := b.nextSweep.Load()
	if now < next || !b.nextSweep.CompareAndSwap(next, now+int64(sweepPeriod)) || next == 0 {
		return // the first time is a minute after the first call
	}
	go func() { _, _ = b.sweep(b.life) }()
}

// sweep deletes rows that are over, unless another process has done so in the last minute. A backend with a clock of
// its own deletes none: what is over by the time of the server may be active by that clock.
func (b *Backend) sweep(ctx context.Context) (due bool, err error) {
	if b.now != nil {
		return false, nil
	}
	err = b.on(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tag, err := conn.Exec(ctx, b.sql.dueToSweep)
		due = tag.RowsAffected() > 0
		return err
	})
	if due {
		_, err = b.sweepAll(ctx)
	}
	return due, err
}

// sweepAll deletes rows that are over, and returns how many.
func (b *Backend) sweepAll(ctx context.Context) (n int, err error) {
	var pages int64
	err = b.on(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, pagesSQL, b.table).Scan(&pages)
	})
	for from := int64(0); from < pages && err == nil; from += sweepPages {
		var all pgx.Batch
		all.Queue(beginSQL)
		all.Queue(b.sql.sweep, fmt.Sprintf("(%d,0)", from),
			fmt.Sprintf("(%d,0)", from+sweepPages)).Exec(func(tag pgconn.CommandTag) error {
			n += int(tag.RowsAffected())
			return nil
		})
		all.Queue(commitSQL)
		err = b.send(ctx, &all)
	}
	return n, err
}
