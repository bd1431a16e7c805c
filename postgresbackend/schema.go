package postgresbackend

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/window"
)

// schema makes the table. Updates of a row stay in its page, and out of the index, as long as no index has what they
// change and the page has room.
const schema = `-- throttr, version 1
CREATE %sTABLE IF NOT EXISTS %s (
	key bytea NOT NULL,      -- who is limited
	lim bytea NOT NULL,      -- algorithm, scale and name of the limit
	ends bigint NOT NULL,    -- when nothing counts, in nanoseconds since 1970
	version bigint NOT NULL, -- of the state: a random number
	before bigint NOT NULL,  -- the version before
	state bytea NOT NULL,    -- what is counted; empty: nothing
	PRIMARY KEY (key, lim)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)`

// Schema returns the statement that makes the table of a backend with these options, for those who make tables
// otherwise than by Open. It does nothing if the table is there. The role of the program needs SELECT, INSERT, UPDATE
// and DELETE on it. Schema panics if an option is nil.
func Schema(opts ...Option) string {
	o := newOptions("Schema", opts)
	return o.schema()
}

func (o *options) schema() string {
	unlogged := ""
	if o.durability == Unlogged {
		unlogged = "UNLOGGED "
	}
	return fmt.Sprintf(schema, unlogged, o.table)
}

// The statements. %s is the table.
//
// An array is an argument through a subquery: the planner then does not know its length, so that the plan for all
// lengths is no worse than one for each call, and is kept. LIMIT makes it look up each row by the index.
const (
	readSQL = `SELECT coalesce(r.state, ''), coalesce(r.version, 0), (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM unnest((SELECT $1::bytea[]), (SELECT $2::bytea[])) AS u(k, l)
LEFT JOIN LATERAL (SELECT state, version FROM %s AS t WHERE t.key = u.k AND t.lim = u.l LIMIT 1) AS r ON true`

	// It is INSERT, and not UPDATE, also because the plan of that reads all of the table.
	writeSQL = `INSERT INTO %s AS t (key, lim, ends, version, before, state)
SELECT k, l, e, v, b, s
FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[]) AS u(k, l, e, v, b, s)
ON CONFLICT (key, lim) DO UPDATE SET ends = excluded.ends, version = excluded.version, before = excluded.before, state = excluded.state
WHERE t.version = excluded.before RETURNING version`

	// asyncSQL precedes writeSQL, and is part of its transaction only.
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
	deleteSQL = `WITH old AS (SELECT lim, ends FROM %[1]s
	WHERE key = $1::bytea AND state <> '' AND ($2::bytea[] IS NULL OR substring(lim FROM 2 FOR 8) = ANY ($2)) ORDER BY lim FOR UPDATE
), clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros)
UPDATE %[1]s AS t SET ends = micros * 1000, version = 1 + (random() * 4e18)::bigint, before = version, state = ''
FROM old, clock WHERE t.key = $1 AND t.lim = old.lim RETURNING old.ends, micros`

	// listSQL reads a page: what is counted after a key and limit, up to a key.
	listSQL = `SELECT key, lim, state, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM %s WHERE (key, lim) > ($1::bytea, $2::bytea) AND key <= $3::bytea AND state <> '' ORDER BY key, lim LIMIT $4::bigint`
)

// statements are the statements for a table.
type statements struct{ read, write, lock, delete, list, dueToSweep, sweep string }

func (o *options) statements() statements {
	of := func(sql string) string { return fmt.Sprintf(sql, o.table) }
	return statements{
		read: of(readSQL), write: of(writeSQL), lock: of(lockSQL), delete: of(deleteSQL), list: of(listSQL),
		dueToSweep: of(dueToSweepSQL), sweep: of(sweepSQL),
	}
}

// prepare makes the table if it is missing, and makes sure that it can be used.
func (b *Backend) prepare(ctx context.Context) error {
	err := b.ping(ctx)
	if !hasCode(err, undefinedTable) {
		return err
	}
	_ = b.on(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err = conn.Exec(ctx, b.schema(), pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err := b.ping(ctx); !hasCode(err, undefinedTable) { // another process may have made it
		return err
	}
	return fmt.Errorf("%w: the table %s is missing, and can't be made (%v): have this run:\n%s",
		window.ErrUnavailable, b.table, err, b.schema())
}

// ping makes a request that changes nothing, and needs all permissions.
func (b *Backend) ping(ctx context.Context) error {
	var all pgx.Batch
	all.Queue(b.sql.read, [][]byte{}, [][]byte{})
	all.Queue(b.sql.write, [][]byte{}, [][]byte{}, []int64{}, []int64{}, []int64{}, [][]byte{})
	all.Queue(b.sql.sweep, "(0,0)", "(0,0)")
	return b.send(ctx, &all)
}
