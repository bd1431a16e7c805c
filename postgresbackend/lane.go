package postgresbackend

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/window"
)

const (
	// timeout bounds a call, and each request: it is a multiple of what a request takes while the server works, also of
	// the second that it may wait for the lock of a process that has stopped.
	timeout = 3 * time.Second
	// maxRows is how many rows a request has, unless a single call has more.
	maxRows = 256
	// maxConflicts is how many conflicts a call has before it locks its row, and how many while it does.
	maxConflicts = 3
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
			var calls []*call
			for _, c := range slices.Concat(entries...) {
				calls = append(calls, &c.Value)
			}
			q := request{backend: b, calls: calls, rows: rowsOf(calls), locks: locks}
			q.finish(b.bound(ctx, q.run))
		},
		Key:     func(c *call) (id, bool) { return c.parts[0].id, len(c.parts) == 1 },
		Size:    func(c *call) int { return len(c.parts) },
		MaxSize: maxRows, MaxInFlight: 1, MaxQueued: b.maxQueued, Punctual: true,
	})
}

// run makes a call. It returns when the timeout is over, however often the call is queued until then.
func (b *Backend) run(ctx context.Context, c *batched) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent, err := b.pass(bounded, c)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == bounded.Err():
		err = errSlow
	case sent:
		return err
	}
	if sent {
		return fmt.Errorf("%w; it may have been counted", err)
	}
	return fmt.Errorf("%w; it was not sent", err)
}

// pass passes a call through the free lane, again if it has a conflict. A call with too many conflicts, others for its
// key in the next second, and all with several parts pass through the locking lane. It returns whether the call was
// sent.
func (b *Backend) pass(ctx context.Context, c *batched) (sent bool, err error) {
	parts := c.Value.parts
	lockUntil := &b.lockUntil[maphash.String(b.seed, parts[0].key)%uint64(len(b.lockUntil))]
	for conflicts := 0; ; {
		to := b.free
		if len(parts) > 1 || lockUntil.Load() > time.Now().UnixNano() {
			to = b.locking
		}
		if sent, err = to.Do(ctx, c); err == nil {
			err = c.Value.err
		}
		if err != errConflict || conflicts == 2*maxConflicts {
			return sent, err
		}
		if conflicts++; conflicts == maxConflicts {
			lockUntil.Store(time.Now().Add(time.Second).UnixNano())
		}
	}
}

// bound calls f with a ctx that ends after the timeout, and when the backend is closed. It returns the error of ctx if
// that has ended, and otherwise that of f as one of a backend. A panic is an error, too: functions of the program that
// pgx calls may run on the goroutine of a lane, where nobody could recover, and other calls wait for the request. If
// the pool's Acquire has panicked, in a hook, the pool does not use its connection again.
func (b *Backend) bound(ctx context.Context, f func(ctx context.Context) error) (err error) {
	if b.life.Err() != nil { // AfterFunc may run its function too late for f
		return window.ErrClosed
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: pgx has panicked: %v\n%s", window.ErrUnavailable, cause, debug.Stack())
		}
	}()
	err = f(bounded)
	if err != nil && ctx.Err() != nil && b.life.Err() == nil {
		return ctx.Err()
	}
	return b.storeError(err)
}

// on calls f with a connection of the pool, as bound does. If pgx panics, the methods of the pool would keep theirs.
func (b *Backend) on(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	return b.bound(ctx, func(ctx context.Context) error {
		conn, err := b.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return f(ctx, conn)
	})
}

// send makes a round trip that is no request of calls.
func (b *Backend) send(ctx context.Context, all *pgx.Batch) error {
	return b.on(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return conn.SendBatch(ctx, all).Close() })
}
