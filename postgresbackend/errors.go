package postgresbackend

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/throttr-go/throttr/window"
)

// The codes of replies that mean more than that the server is away.
const (
	serialization  = "40001" // others have changed a row, and the transaction is serializable
	deadlock       = "40P01"
	undefinedTable = "42P01"
	diskFull       = "53100"
	readOnly       = "25006"
	idle           = "25P03" // a transaction was idle for too long: it is rolled back, and the connection ends
)

var (
	// errRow says that a row has something else than a record of this version. It is about its key and limit alone.
	errRow = errors.New("the row of the limit can't be read")
	// errConflict says that another process has changed a row since it was read. Nothing was counted.
	errConflict = fmt.Errorf("%w: others change the row all the time", window.ErrUnavailable)
	errSlow     = fmt.Errorf("%w: no answer within %v", window.ErrUnavailable, timeout)
)

// hasCode reports whether an error is a reply of the server with a code.
func hasCode(err error, code string) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && reply.Code == code
}

// isReply reports whether the server has said that a statement failed, and goes on with the connection.
func isReply(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && reply.SeverityUnlocalized == "ERROR"
}

// isConflict reports whether the server has undone a request because of what others have done at the same time.
func isConflict(err error) bool {
	return hasCode(err, serialization) || hasCode(err, deadlock) || hasCode(err, idle)
}

// storeError returns an error of pgx as one of a backend.
func (b *Backend) storeError(err error) error {
	switch {
	case err == nil, errors.Is(err, errRow), errors.Is(err, window.ErrUnavailable), errors.Is(err, window.ErrClosed):
		return err
	case b.life.Err() != nil, errors.Is(err, puddle.ErrClosedPool):
		return fmt.Errorf("%w: %w", window.ErrClosed, err)
	case errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(*pgconn.ConnectError)):
		return fmt.Errorf("%w: %w", errSlow, err)
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
