package otelthrottr

import (
	"context"
	"errors"
	"net"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/throttr-go/throttr"
)

// errorType returns the value of error.type for err, or "" if that is nil.
func errorType(err error) string {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		return ""
	case is(context.Canceled):
		return "canceled"
	case isTimeout(err):
		return "timeout"
	case is(throttr.ErrOverloaded), is(throttr.ErrFull):
		return "overloaded"
	case is(throttr.ErrUnavailable):
		return "connection"
	case is(throttr.ErrClosed):
		return "closed"
	case is(throttr.ErrRange), is(throttr.ErrScale), is(throttr.ErrUnsupported):
		return "invalid"
	default:
		return "_OTHER"
	}
}

// isTimeout reports whether err is a deadline that has passed, a network timeout, or a stalled server.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, throttr.ErrStalled) ||
		errors.As(err, &ne) && ne.Timeout()
}

// attributesOf returns the attributes that events of all kinds have.
func attributesOf(outcome string, e throttr.Event) []attribute.KeyValue {
	attributes := append(named(e.Limit.Name), attribute.String("throttr.outcome", outcome))
	if e.Err != nil {
		attributes = append(attributes, attribute.String("error.type", errorType(e.Err)))
	}
	return attributes
}

// named returns the attribute of a limit that has a name. It makes the name valid UTF-8: if one string is invalid,
// exporters drop all that they would send with it.
func named(limit string) []attribute.KeyValue {
	if limit == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String("throttr.limit_name", strings.ToValidUTF8(limit, "\ufffd"))}
}
