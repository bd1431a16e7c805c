package otelthrottr

import (
	"context"
	"errors"
	"net"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/throttr-go/throttr"
)

// The values of throttr.outcome.
const (
	allowed   = "allowed"
	denied    = "denied"
	wouldDeny = "would_deny" // denied in shadow, and so served: see throttr.EventWouldDeny
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
func classOf(e throttr.Event) class {
	c := class{err: errorType(e.Err), degraded: e.Result.Degraded}
	switch e.Kind {
	case throttr.EventAllowed:
		c.outcome = allowed
	case throttr.EventDenied:
		c.outcome = denied
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

func (c class) attributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("throttr.outcome", c.outcome)}
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
	name := named(e.Limit.Name)
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

// named returns the attribute of a limit that has a name. It makes the name valid UTF-8, because exporters drop all that
// they send together if one string is invalid.
func named(limit string) []attribute.KeyValue {
	if limit == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String("throttr.limit_name", strings.ToValidUTF8(limit, "\ufffd"))}
}
