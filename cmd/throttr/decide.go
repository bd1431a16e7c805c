package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/throttr-go/throttr"
)

// decision is how a command decides about takes, and prints the decisions.
type decision func(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error)

// decide returns a command that decides about takes of least or more.
func decide(do decision, least uint64) func(*env, *flags) action {
	return func(e *env, f *flags) action {
		l := limitFlagsOf(f)
		n := uint64(1)
		number(f, &n, "n", least, math.MaxUint64, "how `many` for each key (default 1); of peek, 0 asks only what is counted")
		return func(ctx context.Context, keys []string) (bool, error) {
			if !f.isSet("limit") {
				return false, errors.New("--limit is missing: how many a window may have; throttr list KEY prints what is stored")
			}
			limit, err := l.limit()
			if err != nil {
				return false, err
			}
			takes := make([]throttr.Take, len(keys))
			for i, key := range keys {
				takes[i] = limit.For(key, n)
			}
			columns := []string{"key", "decision", "count", "limit", "remaining", "ends in"}
			onStore := with(e, e.open, columns, func(ctx context.Context, b *throttr.OpenBackend, _ []string) (bool, error) {
				// A person waits, and sees the errors.
				return do(ctx, e.out, throttr.NewRateLimit(b, throttr.WithTimeout(time.Minute),
					throttr.WithLogger(nil)), takes)
			})
			return onStore(ctx, keys)
		}
	}
}

// decided is the JSON of a decision.
type decided struct {
	keyed
	Allowed           bool      `json:"allowed"`
	Count             uint64    `json:"count"`
	Limit             uint64    `json:"limit"`
	Remaining         uint64    `json:"remaining"`
	RetryAfterSeconds *float64  `json:"retry_after_seconds,omitempty"` // nil: waiting does not help
	ResetAt           time.Time `json:"reset_at,omitzero"`
}

// decision prints a decision, in a word.
func (o *output) decision(key string, res throttr.Result, allowed bool, word string) {
	r := decided{keyed: keyOf(key), Allowed: allowed, Count: res.Count, Limit: res.Limit, Remaining: res.Remaining,
		ResetAt: res.ResetAt.UTC()}
	if res.RetryAfter < throttr.Never {
		seconds := res.RetryAfter.Seconds()
		r.RetryAfterSeconds = &seconds
	}
	o.add(r, shown(key), word, res.Count, res.Limit, res.Remaining, leftIf(!res.ResetAt.IsZero(), res.ResetAfter))
}

// word returns the word for a decision.
func word(allowed bool, yes, no string) string {
	if allowed {
		return yes
	}
	return no
}

func hit(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error) {
	return each(ctx, out, limiter.HitN, takes, "allowed", "denied")
}

func peek(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error) {
	return each(ctx, out, limiter.Peek, takes, "would be granted", "would be refused")
}

// each makes a call for each take, and prints the decisions in one of two words.
func each(ctx context.Context, out *output,
	call func(context.Context, string, throttr.Limit, uint64) (throttr.Result, error),
	takes []throttr.Take, yes, no string) (bool, error) {
	return forAll(takes, func(t throttr.Take) (bool, error) {
		res, err := call(ctx, t.Key, t.Limit, t.N)
		if err == nil {
			out.decision(t.Key, res, res.Allowed, word(res.Allowed, yes, no))
		}
		return res.Allowed, err
	})
}

func take(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error) {
	ok, results, err := limiter.TakeAll(ctx, takes...)
	if err != nil {
		return false, err
	}
	for i, res := range results {
		granted := word(ok, "granted", "not taken")
		out.decision(takes[i].Key, res, res.Allowed && ok, word(res.Allowed, granted, "refused"))
	}
	return ok, nil
}

func wait(ctx context.Context, out *output, limiter *throttr.RateLimit, takes []throttr.Take) (bool, error) {
	for _, t := range takes {
		res, err := limiter.Wait(ctx, t.Key, t.Limit, t.N)
		var late *throttr.DeadlineError
		switch {
		case errors.As(err, &late):
			after := time.Until(late.At)
			out.decision(t.Key, throttr.Result{Limit: t.Limit.Max, RetryAfter: after, ResetAfter: after,
				ResetAt: late.At}, false, "refused")
			return false, nil
		case err != nil:
			return false, err
		}
		out.decision(t.Key, res, true, "granted")
	}
	return true, nil
}
