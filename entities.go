package throttr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
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
	Limit             uint64
	Window            time.Duration  // the scale: the length of the window
	Count             uint64         // hits in the window so far, this one included
	RetryAfter        time.Duration  // until the window ends
	ResetAt           time.Time      // when it ends
	Metadata          map[string]any // a copy of the caller's
	Degraded          bool           // the backend failed, and a fallback or a Policy decided
}

// Error names the entity, the operation, the limit, the window and the time to wait.
func (e *RateLimitError) Error() string {
	return fmt.Sprintf("%v: %s may %s %d times in %v; retry in %v",
		ErrRateLimited, strconv.Quote(e.Entity), strconv.Quote(e.Operation), e.Limit, e.Window, e.RetryAfter)
}

// Unwrap returns [ErrRateLimited].
func (e *RateLimitError) Unwrap() error { return ErrRateLimited }

// ValidationError is an invalid argument of a method of [Entities]. Nothing was counted. It
// matches [ErrValidation], and, if the window is too short, [ErrScale].
type ValidationError struct {
	Field  string // "entity", "operation" or "window"
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

// maxName is the greatest length of an entity or operation in bytes.
const maxName = 1024

// Entities limits how often an entity, such as a user, may do an operation, such as an
// upload. It is a thin layer over a [RateLimit] for applications: a denial is an error that
// has all that a handler needs.
//
// An entity and an operation are any text of 1 to 1024 bytes. No two pairs of entity and
// operation share a limit.
//
// Its methods return three kinds of errors:
//   - a [*ValidationError] is a mistake in the program
//   - a [*RateLimitError] is a denial
//   - any other error is one of [RateLimit.Hit], and there is no decision: the backend has
//     failed, the caller's ctx has ended, or the backend can't keep so long a window or count
//     to so high a limit ([*RangeError])
type Entities struct {
	limiter *RateLimit
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

// Check counts one operation of entity. It returns nil if there were at most limit of them in
// the window of the given scale, this one included. The observer gets metadata, and the error
// a copy of it.
func (n *Entities) Check(ctx context.Context, entity, operation string, limit uint64, scale time.Duration, metadata map[string]any) error {
	if err := validate(entity, operation, scale); err != nil {
		return err
	}
	e := event(entity, operation, scale)
	e.Increment, e.Metadata = 1, metadata
	res, err := n.limiter.hit(ctx, &e, limit)
	if err != nil {
		return err
	}
	if res.Allowed {
		return nil
	}
	return &RateLimitError{
		Entity: entity, Operation: operation, Limit: limit, Window: scale, Count: res.Count,
		RetryAfter: res.RetryAfter, ResetAt: res.ResetAt, Metadata: maps.Clone(metadata), Degraded: res.Degraded,
	}
}

// Execute runs f if [Entities.Check] returns nil, and returns f's error, or Check's.
func (n *Entities) Execute(ctx context.Context, entity, operation string, limit uint64, scale time.Duration,
	metadata map[string]any, f func(context.Context) error) error {
	if err := n.Check(ctx, entity, operation, limit, scale, metadata); err != nil {
		return err
	}
	return f(ctx)
}

// Status returns the decision that the window stands for, without counting. Allowed says whether one more
// operation would be allowed now. ResetAt is zero if there is no window.
func (n *Entities) Status(ctx context.Context, entity, operation string, limit uint64, scale time.Duration) (Result, error) {
	if err := validate(entity, operation, scale); err != nil {
		return Result{}, err
	}
	w, err := n.limiter.Window(ctx, entityKey(entity, operation), scale)
	if err != nil {
		return Result{}, err
	}
	res := Result{Allowed: w.Count < limit, Count: w.Count, Limit: limit, ResetAt: w.ExpiresAt}
	if res.Allowed {
		res.Remaining = limit - w.Count
	} else {
		res.RetryAfter = w.Left
	}
	return res, nil
}

// Reset ends the window. The next operation opens another one.
func (n *Entities) Reset(ctx context.Context, entity, operation string, scale time.Duration) error {
	if err := validate(entity, operation, scale); err != nil {
		return err
	}
	return n.limiter.reset(ctx, event(entity, operation, scale))
}

// entityKey makes a key of entity and operation. The length of the entity makes it unambiguous.
func entityKey(entity, operation string) string {
	return strconv.Itoa(len(entity)) + ":" + entity + ":" + operation
}

func event(entity, operation string, scale time.Duration) Event {
	return Event{Key: entityKey(entity, operation), Entity: entity, Operation: operation, Scale: scale}
}

func validate(entity, operation string, scale time.Duration) error {
	for _, f := range []struct{ field, value string }{{"entity", entity}, {"operation", operation}} {
		switch {
		case f.value == "":
			return &ValidationError{Field: f.field, Reason: "is empty"}
		case len(f.value) > maxName:
			return &ValidationError{Field: f.field, Reason: fmt.Sprintf("is %d bytes, at most %d are allowed", len(f.value), maxName)}
		}
	}
	if scale < window.MinScale {
		reason := fmt.Sprintf("of %v is shorter than %v; did you forget the unit?", scale, window.MinScale)
		return &ValidationError{Field: "window", Reason: reason}
	}
	return nil
}
