package grpclimit

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/throttr-go/throttr"
)

// pauseOf returns for how long a service that has refused a call does not want to be called, and whether
// the call may be sent again then. If both a RetryInfo and a pushback say it, the longer time counts.
func pauseOf(err error, trailer metadata.MD) (pause time.Duration, again bool) {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.ResourceExhausted && st.Code() != codes.Unavailable {
		return 0, false
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.RetryDelay.IsValid() {
			pause, again = max(pause, info.RetryDelay.AsDuration()), true
		}
	}
	values := trailer.Get(pushbackTrailer)
	if len(values) == 0 {
		return pause, again
	}
	// Like grpc-go: what is no number, negative, or there several times, means that the call must not be sent again.
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || ms < 0 || len(values) > 1 {
		return pause, false
	}
	return max(pause, time.Duration(ms)*time.Millisecond), true
}

// waitError is the error of a wait, with a status.
type waitError struct {
	*status.Status
	cause error
}

// Error implements error.
func (e *waitError) Error() string { return e.Err().Error() }

// GRPCStatus returns the status, for [status.FromError].
func (e *waitError) GRPCStatus() *status.Status { return e.Status }

// Unwrap returns the cause.
func (e *waitError) Unwrap() error { return e.cause }

// waitErrorOf returns the error of a wait with its status.
func waitErrorOf(ctx context.Context, err error) error {
	var cost *throttr.CostError
	code := codes.Unavailable
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.As(err, &cost), errors.Is(err, throttr.ErrOverloaded):
		code = codes.ResourceExhausted
	case errors.Is(err, throttr.ErrRange), errors.Is(err, throttr.ErrScale), errors.Is(err, throttr.ErrUnsupported):
		code = codes.Internal
	}
	return &waitError{status.New(code, err.Error()), err}
}
