package postgresbackend

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"github.com/throttr-go/throttr/window"
)

// withConn calls f with a connection of the pool, and with a ctx that ends after the timeout, and when the backend is
// closed. It does so again, with another connection, while nothing was done: also if the server has rolled back what f
// has done. It returns the error of ctx if that has ended, and otherwise that of f as one of a backend.
//
// A panic is an error, too: functions of the program that pgx calls may run on the goroutine of a lane, where nobody
// could recover, and other calls wait for the request. The methods of the pool would keep their connection then. If
// its Acquire has panicked, in a hook, the pool does not use that connection again.
func (b *Backend) withConn(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) (err error) {
	if b.life.Err() != nil { // AfterFunc may run its function too late for f
		return window.ErrClosed
	}
	bounded, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: pgx has panicked: %v\n%s", window.ErrUnavailable, cause, debug.Stack())
		}
	}()
	for range maxAttempts {
		err = b.storeError(b.attempt(bounded, f))
		if !errors.Is(err, errNothingDone) && !hasCode(err, rollbacks...) {
			break
		}
	}
	if err != nil && ctx.Err() != nil && b.life.Err() == nil {
		return ctx.Err()
	}
	return err
}

// attempt calls f with a connection of the pool.
func (b *Backend) attempt(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNothingDone, err)
	}
	defer conn.Release() // closes it if a transaction is open
	err = f(ctx, conn)
	if hasCode(err, readOnly) { // another server may be at its address by now
		_ = conn.Conn().Close(ctx)
	}
	return err
}

// send makes a round trip that is no request of calls. Each attempt has a batch of its own: pgx keeps in it what it has
// prepared on a connection.
func (b *Backend) send(ctx context.Context, queue func(all *pgx.Batch)) error {
	return b.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		var all pgx.Batch
		queue(&all)
		return conn.SendBatch(ctx, &all).Close()
	})
}

// The codes of replies that mean more than that the server is away.
const (
	undefinedTable = "42P01"
	diskFull       = "53100"
	readOnly       = "25006"
)

// rollbacks are the codes of replies after which a transaction is rolled back: others have changed a row, and it is
// serializable; others wait for it, and it for them; it was idle for too long, and its connection ends.
var rollbacks = []string{"40001", "40P01", "25P03"}

var (
	// errNothingDone says that a connection could not be made, or was lost before anything can have been counted.
	errNothingDone = errors.New("nothing was done")
	// errConflict says that a call was not counted, because another process has changed a row since it was read: its
	// write has found another version, or the server has rolled back all attempts of withConn.
	errConflict = fmt.Errorf("%w: others change the row all the time", window.ErrUnavailable)
)

// unreadable returns the error of a row that has something else than a record of this version. It is about its key and
// limit alone.
func unreadable(err error) error { return fmt.Errorf("the row of the limit can't be read: %v", err) }

// hasCode reports whether an error is a reply of the server with one of some codes.
func hasCode(err error, codes ...string) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && slices.Contains(codes, reply.Code)
}

// storeError returns an error of pgx as one of a backend.
func (b *Backend) storeError(err error) error {
	switch {
	case err == nil:
		return nil
	case b.life.Err() != nil, errors.Is(err, puddle.ErrClosedPool):
		return fmt.Errorf("%w: %w", window.ErrClosed, err)
	case hasCode(err, rollbacks...):
		return fmt.Errorf("%w: %w", errConflict, err)
	}
	err = fmt.Errorf("%w: %w", window.ErrUnavailable, err)
	switch {
	case hasCode(err, diskFull):
		err = fmt.Errorf("%w: %w", window.ErrFull, err)
	case hasCode(err, undefinedTable):
		err = fmt.Errorf("%w: postgresbackend.Schema makes the table", err)
	}
	return err
}
