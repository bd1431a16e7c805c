package postgresbackend

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// schemaSQL makes the table. Updates of a row stay in its page, and out of the index, as long as no index has what they
// change and the page has room.
const schemaSQL = `-- throttr, version 1
CREATE %sTABLE IF NOT EXISTS %s (
	key bytea NOT NULL,      -- who is limited
	lim bytea NOT NULL,      -- algorithm, scale and name of the limit
	ends bigint NOT NULL,    -- when nothing counts, in nanoseconds since 1970
	version bigint NOT NULL, -- of the state: a random number
	before bigint NOT NULL,  -- the version before
	state bytea NOT NULL,    -- what is counted: nothing, if it is empty
	PRIMARY KEY (key, lim)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)`

// Schema returns the statement that makes the table of a backend with these options, for those who make tables
// otherwise than by Open. It does nothing if the table is there. The role of the program needs SELECT, INSERT, UPDATE
// and DELETE on it. Schema panics if an option is nil.
func Schema(opts ...Option) string {
	o := newOptions("Schema", opts)
	unlogged := ""
	if o.durability == Unlogged {
		unlogged = "UNLOGGED "
	}
	return fmt.Sprintf(schemaSQL, unlogged, o.table)
}

// The statements. %s is the table.
//
// An array is an argument through a subquery: the planner then does not know its length, so that the plan for all
// lengths is no worse than one for each call, and is kept. LIMIT makes it look up each row by the index.
const (
	readSQL = `SELECT coalesce(r.state, ''), coalesce(r.version, 0), (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM unnest((SELECT $1::bytea[]), (SELECT $2::bytea[])) AS u(k, l)
LEFT JOIN LATERAL (SELECT state, version FROM %s AS t WHERE t.key = u.k AND t.lim = u.l LIMIT 1) AS r ON true`

	// writeSQL may have asyncSQL as its source. It is INSERT, and not UPDATE, also because the plan of that reads all of
	// the table.
	writeSQL = `INSERT INTO %[1]s AS t (key, lim, ends, version, before, state)
SELECT unnest($1::bytea[]), unnest($2::bytea[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]), unnest($6::bytea[])
%[2]sON CONFLICT (key, lim) DO UPDATE SET ends = excluded.ends, version = excluded.version, before = excluded.before, state = excluded.state
WHERE t.version = excluded.before RETURNING version`

	// asyncSQL is for the transaction that it is part of.
	asyncSQL  = `SELECT set_config('synchronous_commit', 'off', true)`
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`

	// boundSQL bounds how long a transaction waits for locks, and others for its own if this process stops.
	boundSQL = `SELECT set_config('lock_timeout', '2000', true), set_config('idle_in_transaction_session_timeout', '1000', true)`
	// lockSQL locks rows in their order, and makes those that are missing.
	lockSQL = `INSERT INTO %s AS t (key, lim, ends, version, before, state)
SELECT k, l, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000, 0, 0, ''
FROM unnest((SELECT $1::bytea[]), (SELECT $2::bytea[])) AS u(k, l)
ON CONFLICT (key, lim) DO UPDATE SET ends = 0 WHERE false`

	// deleteSQL ends what is counted of a key, with some scales or with all, and returns when each would have ended. It locks
	// rows in their order.
	deleteSQL = `WITH old AS (SELECT lim, ends FROM %[1]s WHERE key = $1::bytea AND state <> ''
	AND (coalesce(cardinality($2::bigint[]), 0) = 0 OR substring(lim FROM 2 FOR 8) = ANY (SELECT int8send(unnest($2::bigint[]))))
	ORDER BY lim FOR UPDATE
), clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros)
UPDATE %[1]s AS t SET ends = micros * 1000, version = 1 + (random() * 4e18)::bigint, before = version, state = ''
FROM old, clock WHERE t.key = $1 AND t.lim = old.lim RETURNING old.ends, micros`

	// listSQL reads a page: what is counted after a key and limit, up to a key.
	listSQL = `SELECT key, lim, state, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM %s WHERE (key, lim) > ($1::bytea, $2::bytea) AND key <= $3::bytea AND state <> '' ORDER BY key, lim LIMIT $4::bigint`
)

// sql returns a statement for the table.
func (o *options) sql(statement string) string { return fmt.Sprintf(statement, o.table) }

// writing returns the statement that writes rows to the table.
func (o *options) writing() string {
	from := ""
	if o.durability == Async {
		from = "FROM (" + asyncSQL + ") AS async\n"
	}
	return fmt.Sprintf(writeSQL, o.table, from)
}

// prepare makes the table if it is missing, and makes sure that it can be used.
func (b *Backend) prepare(ctx context.Context) error {
	err := b.ping(ctx)
	if !hasCode(err, undefinedTable) {
		return err
	}
	schema := Schema(func(o *options) { *o = b.options })
	failed := b.send(ctx, func(all *pgx.Batch) { all.Queue(schema) })
	err = b.ping(ctx)
	if failed != nil && hasCode(err, undefinedTable) { // otherwise, another process may have made it
		return fmt.Errorf("the table %s is missing, and can't be made: %w: have this run:\n%s", b.table, failed, schema)
	}
	return err
}

// ping makes a request that changes nothing, and needs all permissions.
func (b *Backend) ping(ctx context.Context) error {
	return b.send(ctx, func(all *pgx.Batch) {
		all.Queue(b.readSQL, [][]byte{}, [][]byte{})
		all.Queue(b.writeSQL, [][]byte{}, [][]byte{}, []int64{}, []int64{}, []int64{}, [][]byte{})
		all.Queue(b.sql(sweepSQL), "(0,0)", "(0,0)")
	})
}

const (
	// sweepPages is how many pages of the table are swept in a transaction.
	sweepPages = 256

	// dueToSweepSQL changes a row if a sweep is due, and then none for a minute, unless the clock goes back. That has the
	// empty key and lim, which no count has. It returns how many pages the table has, if a sweep is due.
	dueToSweepSQL = `INSERT INTO %s AS t (key, lim, ends, version, before, state)
SELECT '', '', now + 60000000000, 0, 0, '' FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 AS now) AS n
ON CONFLICT (key, lim) DO UPDATE SET ends = excluded.ends WHERE t.ends NOT BETWEEN excluded.ends - 59999999999 AND excluded.ends + 60000000000
RETURNING pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint`

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
	if now >= next && b.nextSweep.CompareAndSwap(next, now+int64(time.Minute)) && next > 0 {
		go func() { _ = b.sweep(b.life) }() // the first time is a minute after the first call
	}
}

// sweep deletes rows that are over, unless another process has done so in the last minute. A backend with a clock of
// its own deletes none: what is over by the time of the server may be active by that clock.
func (b *Backend) sweep(ctx context.Context) error {
	if b.now != nil {
		return nil
	}
	var pages int64
	err := b.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(dueToSweepSQL), b.table).Scan(&pages) // pgx.ErrNoRows if it is not due
	})
	for from := int64(0); from < pages && err == nil; from += sweepPages {
		err = b.send(ctx, func(all *pgx.Batch) {
			all.Queue(beginSQL)
			all.Queue(b.sql(sweepSQL), fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", from+sweepPages))
			all.Queue(commitSQL)
		})
	}
	return err
}

// id is the primary key of a row: what is stored of a key and limit.
type id struct{ key, limit string }

// idOf returns the id of a key and limit. Of the limit, the algorithm, the scale, and the name are stored. Before the
// name, calendar windows have the unit, the start day, and the zone with a zero byte.
func idOf(key string, l *window.Limit) id {
	to := binary.BigEndian.AppendUint64(append(make([]byte, 0, 64), byte(l.Algorithm)), uint64(l.Scale))
	if l.Calendar != 0 {
		of := limits.Identity(l)
		to = append(to, byte(of.Calendar), of.StartDay)
		to = append(append(to, of.Zone...), 0)
	}
	return id{storedKey(key), string(append(to, l.Name...))}
}

// longestKey is the length of the longest key that is stored as it is. Of a longer one, its beginning and a digest are
// stored, which are one byte longer.
const longestKey = 255

// storedKey returns what is stored of a key.
func storedKey(key string) string {
	if len(key) <= longestKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	digest := base64.RawURLEncoding.EncodeToString(sum[:])
	return key[:longestKey+1-len(digest)] + digest
}

// windowLimit returns the limit of an id, without its Max and Burst.
func windowLimit(stored []byte) (window.Limit, error) {
	if len(stored) < 9 {
		return window.Limit{}, fmt.Errorf("lim has %d bytes", len(stored))
	}
	l := window.Limit{
		Algorithm: window.Algorithm(stored[0]),
		Scale:     time.Duration(binary.BigEndian.Uint64(stored[1:9])),
		Name:      string(stored[9:]),
	}
	if l.Algorithm == window.CalendarWindow && len(l.Name) > 2 {
		l.Calendar = window.Calendar(l.Name[0])
		l.StartDay = l.Name[1]
		l.Zone, l.Name, _ = strings.Cut(l.Name[2:], "\x00")
	}
	return l, limits.Check(&l)
}
