package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

func TestRequestErrorSaysWhetherTheRequestWasSent(t *testing.T) {
	lost := fmt.Errorf("%w: %w", throttr.ErrConnLost, io.EOF)
	err := error(&throttr.RequestError{Server: "h:1", Op: codec.OpInsert, Sent: true, Err: lost})
	require.EqualError(t, err, "throttr: INSERT: server h:1 unavailable: connection lost: EOF (may have been executed)")
	require.ErrorIs(t, err, throttr.ErrConnLost)
	require.ErrorIs(t, err, io.EOF)
	require.False(t, testkit.SafeToRetry(err))

	err = &throttr.RequestError{Server: "h:1", Err: throttr.ErrOverloaded}
	require.EqualError(t, err, "throttr: batch: server h:1: too many calls are waiting (not sent)")
	require.True(t, testkit.SafeToRetry(fmt.Errorf("wrapped: %w", err)))
}

func TestTimeoutRecognizesDeadlinesAndStalls(t *testing.T) {
	for _, err := range []error{
		context.DeadlineExceeded, os.ErrDeadlineExceeded, fmt.Errorf("%w: no byte", throttr.ErrStalled),
		&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
	} {
		require.True(t, (&throttr.RequestError{Err: err}).Timeout(), "%v", err)
	}
	for _, err := range []error{nil, context.Canceled, io.EOF, throttr.ErrConnLost, throttr.ErrOverloaded, errors.New("x")} {
		require.False(t, (&throttr.RequestError{Err: err}).Timeout(), "%v", err)
	}
}
