package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
)

const (
	attempts = 3
	period   = 15 * time.Minute
)

var errPassword = errors.New("wrong password")

// lockedError tells how long a user has to wait.
type lockedError struct{ wait time.Duration }

// Error says when to try again.
func (e *lockedError) Error() string {
	return fmt.Sprintf("too many attempts, come back in %v", e.wait)
}

// door lets in who knows the password, and gives everybody a few attempts.
type door struct{ limiter *throttr.RateLimit }

// login checks a password. Errors: errPassword; a *lockedError after too many attempts;
// those of the rate limit, when nobody is let in.
func (d *door) login(ctx context.Context, user, password string) error {
	res, err := d.limiter.Hit(ctx, "login:"+user, period, attempts)
	if err != nil {
		return err
	}
	if !res.Allowed {
		return &lockedError{wait: res.RetryAfter.Round(time.Second)}
	}
	if password != "secret" {
		return errPassword
	}
	return d.limiter.Reset(ctx, "login:"+user, period)
}
