// Package entities limits how often an entity, such as a user, may do an operation, such as an upload. It
// is a thin layer over a RateLimit for applications: a denial is an error that has all that a handler
// needs.
//
//	var upload = throttr.Limit{Name: "upload", Max: 10, Scale: time.Hour}
//
//	users := entities.New(limiter)
//	err := users.Hit(ctx, "user:42", upload)
//	var denied *throttr.RateLimitError
//	if errors.As(err, &denied) {
//
// The operation is the Name of the limit. For an entity of several parts, such as a user and an address,
// use [throttr.Key].
//
// The methods return three kinds of errors:
//   - a [*ValidationError] is a mistake in the program: nothing was counted
//   - a [*throttr.RateLimitError] is a denial, with the entity as its Key
//   - any other error is one of a RateLimit, and there is no decision
package entities

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/throttr-go/throttr"
)

// ErrValidation says that an argument is invalid. See [ValidationError].
var ErrValidation = errors.New("entities: invalid argument")

// ValidationError is an invalid argument. It matches [ErrValidation].
type ValidationError struct {
	Field  string // "entity" or "operation"
	Reason string // what is wrong with it
}

// Error names the field and what is wrong with it.
func (e *ValidationError) Error() string {
	return fmt.Sprintf("%v: %s %s", ErrValidation, e.Field, e.Reason)
}

// Unwrap returns [ErrValidation].
func (e *ValidationError) Unwrap() error { return ErrValidation }

// Limiter limits operations of entities. It is safe for concurrent use.
type Limiter struct {
	limiter *throttr.RateLimit
}

// New returns a Limiter that counts with limiter. It panics if limiter is nil.
func New(limiter *throttr.RateLimit) *Limiter {
	if limiter == nil {
		panic("entities: New: limiter is nil")
	}
	return &Limiter{limiter: limiter}
}

// Hit counts one operation of an entity. It returns nil if there were at most Max of them in the window,
// this one included.
func (l *Limiter) Hit(ctx context.Context, entity string, operation throttr.Limit) error {
	if err := validate(entity, operation); err != nil {
		return err
	}
	res, err := l.limiter.HitN(ctx, entity, operation, 1)
	if err != nil {
		return err
	}
	return denial(entity, operation, res)
}

// Execute runs f if [Limiter.Hit] returns nil, and returns f's error, or Hit's.
func (l *Limiter) Execute(ctx context.Context, entity string, operation throttr.Limit,
	f func(context.Context) error) error {
	if err := l.Hit(ctx, entity, operation); err != nil {
		return err
	}
	return f(ctx)
}

// Peek returns the state of the window without counting. Allowed says whether one more operation would be
// allowed now. ResetAt is zero if there is no window.
func (l *Limiter) Peek(ctx context.Context, entity string, operation throttr.Limit) (throttr.Result, error) {
	if err := validate(entity, operation); err != nil {
		return throttr.Result{}, err
	}
	return l.limiter.Peek(ctx, entity, operation, 1)
}

// Reserve takes cost, as RateLimit.Reserve does. The caller then commits what was really used, or cancels.
// A denial is a [*throttr.RateLimitError], and counts nothing.
func (l *Limiter) Reserve(ctx context.Context, entity string, operation throttr.Limit,
	cost uint64) (*throttr.Reservation, error) {
	if err := validate(entity, operation); err != nil {
		return nil, err
	}
	rv, ok, err := l.limiter.Reserve(ctx, operation.For(entity, cost))
	if err == nil && !ok {
		err = denial(entity, operation, rv.Results()[0])
	}
	if err != nil {
		return nil, err
	}
	return rv, nil
}

// Wait waits until cost is taken, as RateLimit.Wait does. Beside a [*ValidationError], errors are those of
// RateLimit.Wait.
func (l *Limiter) Wait(ctx context.Context, entity string, operation throttr.Limit, cost uint64) error {
	if err := validate(entity, operation); err != nil {
		return err
	}
	_, err := l.limiter.Wait(ctx, entity, operation, cost)
	return err
}

// Reset ends the window. The next operation opens another one.
func (l *Limiter) Reset(ctx context.Context, entity string, operation throttr.Limit) error {
	if err := validate(entity, operation); err != nil {
		return err
	}
	return l.limiter.Forget(ctx, entity, operation)
}

// denial returns the error of a result that is a denial, and nil otherwise.
func denial(entity string, operation throttr.Limit, res throttr.Result) error {
	if res.Allowed {
		return nil
	}
	return &throttr.RateLimitError{Key: entity, Limit: operation, Result: res}
}

// maxEntity is the greatest length of an entity in bytes.
const maxEntity = 1024

// validate returns a [*ValidationError] if an argument is invalid.
func validate(entity string, operation throttr.Limit) error {
	switch {
	case entity == "":
		return &ValidationError{Field: "entity", Reason: "is empty"}
	case len(entity) > maxEntity:
		return &ValidationError{Field: "entity",
			Reason: fmt.Sprintf("is %d bytes, at most %d are allowed", len(entity), maxEntity)}
	case operation.Name == "":
		return &ValidationError{Field: "operation", Reason: "is empty: it is the Name of the limit"}
	}
	return nil
}

// metadataKey is the key of metadata in a context.
type metadataKey struct{}

// WithMetadata returns a context whose calls carry metadata to observers, which read it with [Metadata]. A
// copy of the map is kept.
func WithMetadata(ctx context.Context, metadata map[string]any) context.Context {
	return context.WithValue(ctx, metadataKey{}, maps.Clone(metadata))
}

// Metadata returns the metadata of a context, or nil. It must not be changed.
func Metadata(ctx context.Context) map[string]any {
	metadata, _ := ctx.Value(metadataKey{}).(map[string]any)
	return metadata
}
