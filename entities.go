package throttr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/window"
)

var (
	// ErrRateLimited says that a limit is exceeded. See [RateLimitError].
	ErrRateLimited = errors.New("throttr: rate limit exceeded")
	// ErrValidation says that an argument is invalid. See [ValidationError].
	ErrValidation = errors.New("throttr: invalid rate limit")
)

// RateLimitError is a denial. It matches [ErrRateLimited].
type RateLimitError struct {
	Entity, Operation string
	Parts             []string // further parts, see Entities.With; must not be changed
	Limit             uint64
	Window            time.Duration  // the scale: the length of the window
	Count             uint64         // hits in the window so far, this one included; without a take
	RetryAfter        time.Duration  // until the window ends
	ResetAt           time.Time      // when it ends
	Metadata          map[string]any // a copy of the caller's
	Degraded          bool           // the backend failed, and a fallback or a Policy decided
}

// Error names the entity, the operation, the limit, the window and the time to wait.
func (e *RateLimitError) Error() string {
	parts := ""
	if len(e.Parts) > 0 {
		parts = fmt.Sprintf(" with %q", e.Parts)
	}
	return fmt.Sprintf("%v: %q%s may %q %d times in %v; retry in %v",
		ErrRateLimited, e.Entity, parts, e.Operation, e.Limit, e.Window, e.RetryAfter)
}

// Unwrap returns [ErrRateLimited].
func (e *RateLimitError) Unwrap() error { return ErrRateLimited }

// ValidationError is an invalid argument of a method of [Entities]. Nothing was counted. It
// matches [ErrValidation], and, if the window is too short, [ErrScale].
type ValidationError struct {
	Field  string // "entity", "operation", "part" or "window"
	Reason string // what is wrong with it
}

// Error names the field and what is wrong with it.
func (e *ValidationError) Error() string {
	return fmt.Sprintf("%v: %s %s", ErrValidation, e.Field, e.Reason)
}

// Unwrap returns [ErrValidation].
func (e *ValidationError) Unwrap() error { return ErrValidation }

// Is reports whether target is [ErrScale] and the window is too short.
func (e *ValidationError) Is(target error) bool { return target == ErrScale && e.Field == "window" }

// Key makes one key of several parts, such as a user and an address:
//
//	throttr.Key("user", "42", "ip", "2001:db8::1")   // user:42:ip:2001\:db8\:\:1
//
// The parts are separated by colons. A colon or backslash in a part is written with a backslash
// before it. So two lists of parts never have the same key, whatever bytes they have. (A list of
// no parts has the key of one empty part.)
func Key(parts ...string) string {
	size := len(parts)
	special := false
	for _, p := range parts {
		size += len(p)
		special = special || strings.ContainsAny(p, `:\`)
	}
	if !special {
		return strings.Join(parts, ":")
	}
	b := make([]byte, 0, size+8)
	for i, p := range parts {
		if i > 0 {
			b = append(b, ':')
		}
		for _, c := range []byte(p) {
			if c == ':' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
	}
	return string(b)
}

// maxName is the greatest length of an entity, an operation or a further part in bytes.
const maxName = 1024

// Entities limits how often an entity, such as a user, may do an operation, such as an
// upload. It is a thin layer over a [RateLimit] for applications: a denial is an error that
// has all that a handler needs.
//
// An entity and an operation are any text of 1 to 1024 bytes. No two pairs of entity and
// operation share a limit. [Entities.With] adds further parts.
//
// Its methods return three kinds of errors:
//   - a [*ValidationError] is a mistake in the program
//   - a [*RateLimitError] is a denial
//   - any other error is one of [RateLimit.Hit], and there is no decision: the backend has
//     failed, the caller's ctx has ended, or the backend can't keep so long a window or count
//     to so high a limit ([*RangeError])
type Entities struct {
	limiter *RateLimit
	parts   []string
}

// NewEntities returns an Entities that counts with limiter. Its keys look like
// "7:user:42:upload": they begin with the length of the entity. The limiter may be used for
// other keys as well if they look different. NewEntities panics if limiter is nil.
func NewEntities(limiter *RateLimit) *Entities {
	if limiter == nil {
		panic("throttr: NewEntities: limiter is nil")
	}
	return &Entities{limiter: limiter}
}

// With returns an Entities whose limits are for an entity, an operation and further parts. With an
// address as such a part, each address that an entity uses has a limit of its own:
//
//	err := entities.With(ip).Check(ctx, "user:42", "login", 5, time.Hour, nil)
//
// Each part is any text of 1 to 1024 bytes. Their keys begin with a plus sign, and are otherwise
// made by [Key]. With called on the result adds more parts.
func (n *Entities) With(parts ...string) *Entities {
	return &Entities{limiter: n.limiter, parts: slices.Concat(n.parts, parts)}
}

// Check counts one operation of entity. It returns nil if there were at most limit of them in
// the window of the given scale, this one included. The observer gets metadata, and the error
// a copy of it.
func (n *Entities) Check(ctx context.Context, entity, operation string, limit uint64, scale time.Duration, metadata map[string]any) error {
	if err := n.validate(entity, operation, scale); err != nil {
		return err
	}
	e := n.event(entity, operation, scale)
	e.Increment, e.Metadata = 1, metadata
	res, err := n.limiter.hit(ctx, &e, limit)
	if err != nil {
		return err
	}
	if res.Allowed {
		return nil
	}
	return n.denial(&e, res)
}

// denial returns the error of a hit or take that was denied.
func (n *Entities) denial(e *Event, res Result) error {
	return &RateLimitError{
		Entity: e.Entity, Operation: e.Operation, Parts: n.parts, Limit: res.Limit, Window: e.Scale, Count: res.Count,
		RetryAfter: res.RetryAfter, ResetAt: res.ResetAt, Metadata: maps.Clone(e.Metadata), Degraded: res.Degraded,
	}
}

// Reserve takes cost from the window, as [RateLimit.Reserve] does. The caller then commits what was
// really used, or cancels. A refusal is a [*RateLimitError], and costs nothing. A cost of more than
// limit is a [*CostError].
func (n *Entities) Reserve(ctx context.Context, entity, operation string, limit uint64, scale time.Duration, cost uint64,
	metadata map[string]any) (*Reservation, error) {
	if err := n.validate(entity, operation, scale); err != nil {
		return nil, err
	}
	e := n.event(entity, operation, scale)
	e.Metadata = maps.Clone(metadata) // it is used again when the reservation is settled
	limits := []Limit{{Key: e.Key, Scale: scale, Limit: limit, N: cost}}
	v, err := n.limiter.reserve(ctx, taking{limits: limits, event: e})
	if err != nil {
		return nil, err
	}
	if !v.OK() {
		return nil, n.denial(&e, v.Results()[0])
	}
	return v, nil
}

// Wait waits until cost is taken from the window, as [RateLimit.Wait] does, with the same errors.
func (n *Entities) Wait(ctx context.Context, entity, operation string, limit uint64, scale time.Duration, cost uint64,
	metadata map[string]any) error {
	if err := n.validate(entity, operation, scale); err != nil {
		return err
	}
	e := n.event(entity, operation, scale)
	e.Increment, e.Waited, e.Metadata = cost, true, metadata
	_, err := n.limiter.wait(ctx, e, limit)
	return err
}

// Execute runs f if [Entities.Check] returns nil, and returns f's error, or Check's.
func (n *Entities) Execute(ctx context.Context, entity, operation string, limit uint64, scale time.Duration,
	metadata map[string]any, f func(context.Context) error) error {
	if err := n.Check(ctx, entity, operation, limit, scale, metadata); err != nil {
		return err
	}
	return f(ctx)
}

// Status returns the state of the window without counting. Allowed says whether one more operation
// would be allowed now. ResetAt is zero if there is no window.
func (n *Entities) Status(ctx context.Context, entity, operation string, limit uint64, scale time.Duration) (Result, error) {
	if err := n.validate(entity, operation, scale); err != nil {
		return Result{}, err
	}
	w, err := window.Peek(ctx, n.limiter.backend, n.key(entity, operation), scale, limit, 1)
	if err != nil {
		return Result{}, err
	}
	var res Result
	res.setTaken(w.Count, limit, w.Left, retryAfter(&w), w.ExpiresAt, !w.Refused)
	return res, nil
}

// Reset ends the window. The next operation opens another one.
func (n *Entities) Reset(ctx context.Context, entity, operation string, scale time.Duration) error {
	if err := n.validate(entity, operation, scale); err != nil {
		return err
	}
	return n.limiter.reset(ctx, n.event(entity, operation, scale))
}

// key makes a key of an entity, an operation and the further parts. The length of the entity makes
// a key without further parts unambiguous, and the first character distinguishes it from others.
func (n *Entities) key(entity, operation string) string {
	if len(n.parts) == 0 {
		return strconv.Itoa(len(entity)) + ":" + entity + ":" + operation
	}
	return "+" + Key(append([]string{entity, operation}, n.parts...)...)
}

func (n *Entities) event(entity, operation string, scale time.Duration) Event {
	return Event{Key: n.key(entity, operation), Entity: entity, Operation: operation, Parts: n.parts, Scale: scale}
}

func (n *Entities) validate(entity, operation string, scale time.Duration) error {
	if err := validateName("entity", entity); err != nil {
		return err
	}
	if err := validateName("operation", operation); err != nil {
		return err
	}
	for _, p := range n.parts {
		if err := validateName("part", p); err != nil {
			return err
		}
	}
	if scale < window.MinScale {
		reason := fmt.Sprintf("of %v is shorter than %v; did you forget the unit?", scale, window.MinScale)
		return &ValidationError{Field: "window", Reason: reason}
	}
	return nil
}

func validateName(field, value string) error {
	switch {
	case value == "":
		return &ValidationError{Field: field, Reason: "is empty"}
	case len(value) > maxName:
		return &ValidationError{Field: field, Reason: fmt.Sprintf("is %d bytes, at most %d are allowed", len(value), maxName)}
	}
	return nil
}
