package otelthrottr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/entities"
)

// The values of throttr.outcome.
const (
	allowed   = "allowed"
	denied    = "denied"
	wouldDeny = "would_deny" // denied in shadow, and so served: see throttr.EventWouldDeny and admission.InShadow
	failed    = "failed"
	done      = "done"
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

// class holds the parts of an event that are attributes of metrics. There are few classes.
type class struct {
	reset    bool
	settled  bool
	outcome  string
	degraded bool
	err      string // what errorType returns
}

// classOf returns the class of an event.
func classOf(ctx context.Context, e throttr.Event) class {
	c := class{err: errorType(e.Err), degraded: e.Result.Degraded}
	switch e.Kind {
	case throttr.EventAllowed:
		c.outcome = allowed
	case throttr.EventDenied:
		c.outcome = denied
		if admission.InShadow(ctx) {
			c.outcome = wouldDeny
		}
	case throttr.EventWouldDeny:
		c.outcome = wouldDeny
	case throttr.EventReset:
		c.reset, c.outcome = true, done
	case throttr.EventSettled:
		c.settled, c.outcome = true, done
		if c.err != "" {
			c.outcome = failed
		}
	default:
		c.reset, c.outcome = e.Call == "reset" || e.Call == "forget", failed
	}
	return c
}

// name returns the name of the span or event of e, which is of the class.
func (c class) name(e throttr.Event) string {
	switch {
	case c.settled:
		return "throttr.settle"
	case e.Call == "reserve":
		return "throttr.take"
	}
	return "throttr." + e.Call
}

func (c class) attributes() []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 12)
	attrs = append(attrs, attribute.String("throttr.outcome", c.outcome))
	if !c.reset && !c.settled {
		attrs = append(attrs, attribute.Bool("throttr.degraded", c.degraded))
	}
	if c.err != "" {
		attrs = append(attrs, attribute.String("error.type", c.err))
	}
	return attrs
}

// labelsID identifies labels: they are those of a class and of the name of a limit.
type labelsID struct {
	class
	name string
}

// labels are the attributes of a measurement, as options that are allocated once.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
	named  []metric.RecordOption // those of the name alone
}

// maxLabels bounds how many labels are kept: those of the classes for a thousand names of limits. There
// should be few.
const maxLabels = 40 << 10

// labelsOf returns the labels of an event.
func (o *observer) labelsOf(c class, e throttr.Event) labels {
	of := labelsID{c, e.Limit.Name}
	o.mu.RLock()
	l, ok := o.labels[of]
	full := len(o.labels) >= maxLabels
	o.mu.RUnlock()
	if ok {
		return l
	}
	name := named(e.Limit)
	all := metric.WithAttributeSet(attribute.NewSet(append(c.attributes(), name...)...))
	l = labels{
		add:    []metric.AddOption{all},
		record: []metric.RecordOption{all},
		named:  []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(name...))},
	}
	if !full {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.labels[of] = l
	}
	return l
}

// named returns the attribute of a limit that has a name.
func named(l throttr.Limit) []attribute.KeyValue {
	if l.Name == "" {
		return nil
	}
	return []attribute.KeyValue{text("throttr.limit_name", l.Name)}
}

// details returns the attributes of a span.
func (o *observer) details(ctx context.Context, c class, e throttr.Event) []attribute.KeyValue {
	length := attribute.Float64("throttr.scale", e.Limit.Scale.Seconds())
	if e.Limit.Calendar != 0 {
		length = text("throttr.calendar", e.Limit.Calendar.String())
	}
	attrs := append(c.attributes(), length, text("throttr.algorithm", e.Limit.Algorithm.String()))
	attrs = append(attrs, named(e.Limit)...)
	if !c.reset {
		attrs = append(attrs, number("throttr.limit", e.Limit.Max), number("throttr.n", e.N))
	}
	if e.Limit.Burst != 0 {
		attrs = append(attrs, number("throttr.burst", e.Limit.Burst))
	}
	if c.settled {
		attrs = append(attrs, number("throttr.reserved", e.Reserved))
	}
	if c.outcome == allowed || c.outcome == denied || c.outcome == wouldDeny {
		attrs = append(attrs, number("throttr.count", e.Result.Count))
	}
	if (c.outcome == denied || c.outcome == wouldDeny) && e.Result.RetryAfter < throttr.Never {
		attrs = append(attrs, attribute.Float64("throttr.retry_after", e.Result.RetryAfter.Seconds()))
	}
	if e.Err != nil {
		attrs = append(attrs, attribute.String("error.message", o.message(e.Err)))
	}
	if o.identity {
		attrs = append(attrs, identity(ctx, e)...)
	}
	return attrs
}

// identity returns the attributes of WithIdentity.
func identity(ctx context.Context, e throttr.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{text("throttr.key", e.Key)}
	metadata := entities.Metadata(ctx)
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		attrs = append(attrs, text("throttr.metadata."+k, fmt.Sprint(metadata[k])))
	}
	return attrs
}

// number returns an attribute for n, or for the largest int64 if n is larger.
func number(key string, n uint64) attribute.KeyValue {
	return attribute.Int64(key, int64(min(n, math.MaxInt64)))
}

// text returns an attribute for a string that may contain any bytes. It makes the string valid
// UTF-8, because exporters drop all that they send together if one string is invalid.
func text(key, value string) attribute.KeyValue {
	return attribute.String(valid(key), valid(value))
}

func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// message describes err, which is not nil. Without WithIdentity it is not the text of err, which may have
// the key.
func (o *observer) message(err error) string {
	if o.identity {
		return valid(err.Error())
	}
	return cause(err)
}

// causes are errors whose texts are constant. Of two that an error matches, the first says more.
var causes = []error{
	throttr.ErrValueSizeMismatch, throttr.ErrLockedUp, throttr.ErrStalled, throttr.ErrConnLost, throttr.ErrProtocol,
	throttr.ErrConnect, throttr.ErrUnavailable, throttr.ErrFull, throttr.ErrOverloaded,
	throttr.ErrClosed, throttr.ErrRange, throttr.ErrScale, throttr.ErrConfig, throttr.ErrUnsupported,
	context.Canceled, context.DeadlineExceeded,
}

// cause says why err occurred: the text of the known error that it matches, or else of the error of the
// system, or else the type of the error that it wraps last.
func cause(err error) string {
	for _, known := range causes {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	var system syscall.Errno
	if errors.As(err, &system) {
		return system.Error()
	}
	for {
		inner := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			inner = joined.Unwrap()[0]
		}
		if inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}
