package throttr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"
)

var (
	// ErrRateLimited says that a limit has been reached. See [RateLimitError].
	ErrRateLimited = errors.New("throttr: rate limit exceeded")
	// ErrValidation says that an entity, operation, limit or window can't be checked. See
	// [ValidationError].
	ErrValidation = errors.New("throttr: invalid rate limit")
)

// RateLimitError is a denial. It matches [ErrRateLimited].
type RateLimitError struct {
	Entity, Operation string
	Limit             uint64
	Window            time.Duration  // the window's length
	Count             uint64         // hits in the window so far, this one included
	RetryAfter        time.Duration  // until the window ends
	ResetAt           time.Time      // when it ends
	Metadata          map[string]any // a copy of the caller's
	Degraded          bool           // a Policy has decided, as the backend gave no answer
}

// Error tells who may do what, how often, and when again.
func (e *RateLimitError) Error() string {
	return fmt.Sprintf("%v: %s may %s %d times in %v; retry in %v",
		ErrRateLimited, strconv.Quote(e.Entity), strconv.Quote(e.Operation), e.Limit, e.Window, e.RetryAfter)
}

// Unwrap returns [ErrRateLimited].
func (e *RateLimitError) Unwrap() error { return ErrRateLimited }

// ValidationError is a check that makes no sense. Nothing was counted. It matches
// [ErrValidation].
type ValidationError struct {
	Field  string // "entity", "operation" or "window"
	Reason string
}

// Error names the field and what is wrong with it.
func (e *ValidationError) Error() string {
	return fmt.Sprintf("%v: %s %s", ErrValidation, e.Field, e.Reason)
}

// Unwrap returns [ErrValidation].
func (e *ValidationError) Unwrap() error { return ErrValidation }

// maxName is the longest entity or operation in bytes.
const maxName = 1024

// Entities limits how often an entity, such as a user, may do an operation, such as an
// upload. It is a thin layer over a [RateLimit] for applications: a denial is an error that
// says everything a handler needs.
//
// An entity and an operation are any text of 1 to 1024 bytes. No two pairs share a limit,
// however their names would look when joined.
//
// Its methods return three kinds of errors: a [*ValidationError], which is a mistake in the
// program; a [*RateLimitError], which is a denial; and whatever else, which says that there
// is no decision. That is one of [RateLimit.Hit]: mostly a failure of the backend, but also
// the end of the caller's ctx, or a [*RangeError], where the backend can't keep so long a
// window or count to such a limit.
type Entities struct {
	limiter *RateLimit
}

// NewEntities returns an Entities that counts with limiter. The keys that it makes there look
// like "7:user:42:upload", with the entity's length in front. Other keys may be hit beside it
// as long as they look different.
func NewEntities(limiter *RateLimit) *Entities { return &Entities{limiter: limiter} }

// Check counts that entity does operation, and returns nil if it has not done it more than
// limit times in the window, which is as long as scale. Metadata is handed to the observer,
// and a copy of it to the error.
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

// Status tells how the entity stands, without counting: Allowed is whether one more would
// be let through now. Its zero ResetAt says that there is no window.
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

// Reset forgets how often entity has done operation in the present window.
func (n *Entities) Reset(ctx context.Context, entity, operation string, scale time.Duration) error {
	if err := validate(entity, operation, scale); err != nil {
		return err
	}
	return n.limiter.reset(ctx, event(entity, operation, scale))
}

// entityKey joins entity and operation. The length in front makes it unambiguous.
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
	if scale <= 0 {
		return &ValidationError{Field: "window", Reason: fmt.Sprintf("must be positive, it is %v", scale)}
	}
	return nil
}
