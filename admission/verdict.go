package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/outage"
)

// Verdict is what is to be done with a request.
type Verdict uint8

const (
	Serve         Verdict = iota + 1 // serve it
	Deny                             // it exceeds a limit
	Unavailable                      // refuse it: it could not be counted, and it must not be served without
	Misconfigured                    // the backend can't keep a limit, or it has no key: a mistake in the program
	Canceled                         // it could not be counted before its context has ended: do not serve it
)

var verdicts = [...]string{"unknown", "serve", "deny", "unavailable", "misconfigured", "canceled"}

// String returns the verdict as a word, such as "serve".
func (v Verdict) String() string {
	if int(v) >= len(verdicts) {
		v = 0
	}
	return verdicts[v]
}

// HTTPStatus returns the status of an HTTP response: 200, 429, 503, 500, or 499 for a request that was canceled,
// which only logs show if the client has disconnected.
func (v Verdict) HTTPStatus() int {
	switch v {
	case Serve:
		return 200
	case Deny:
		return 429
	case Unavailable:
		return 503
	case Canceled:
		return 499 // the number is that of nginx
	default:
		return 500
	}
}

// Verdict returns what is to be done with the request. That of the zero Decision is Unavailable.
func (d *Decision) Verdict() Verdict { return cmp.Or(d.verdict, Unavailable) }

// verdict returns what is to be done with a request that was decided.
func (g *Gate) verdict(ctx context.Context, d *Decision) Verdict {
	switch {
	case d.Err != nil && outage.Ended(ctx):
		return Canceled
	case d.Err != nil && (outage.IsMistake(d.Err) || errors.Is(d.Err, throttr.ErrValueSizeMismatch)):
		return Misconfigured // to serve it would leave it without a limit for good
	case d.noPlace():
		return g.cfg.NoPlace
	case !d.Allowed && d.Strictest.Name != "" && (d.Strictest.Known() || !d.Strictest.Degraded):
		return Deny
	case !d.Allowed: // by the throttr.Policy, and no limit is exceeded
		return Unavailable
	case d.Err != nil && (g.cfg.FailClosed || neverServed(d.Err)):
		return Unavailable
	}
	return Serve
}

// neverServed reports whether a request that could not be counted because of err is refused, also without
// Config.FailClosed: clients may have filled the backend to be served without a limit, and on one that was closed, no
// request would have a limit any more.
func neverServed(err error) bool {
	return errors.Is(err, throttr.ErrFull) || errors.Is(err, throttr.ErrClosed)
}

// WaitText returns a time in the unit that makes it readable, rounded up: "120 s", "3 min", "41 h", "31 days".
func WaitText(seconds int64) string {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	unit, name := int64(1), "s"
	switch {
	case seconds > 2*day:
		unit, name = day, "days"
	case seconds > 2*hour:
		unit, name = hour, "h"
	case seconds > 2*minute:
		unit, name = minute, "min"
	}
	return fmt.Sprintf("%d %s", 1+(seconds-1)/unit, name)
}

// Text returns a line for the client, such as "Too many requests. Try again in 3 s."
func (d *Decision) Text() string {
	text := ""
	switch d.Verdict() {
	case Deny:
		text = "Too many requests."
	case Unavailable:
		text = "Service unavailable."
	case Misconfigured:
		return "The rate limit is misconfigured."
	}
	if text != "" && d.RetryAfter < throttr.Never {
		text += " Try again in " + WaitText(Seconds(d.RetryAfter)) + "."
	}
	return text
}
