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
	scale    = 15 * time.Minute
)

var errPassword = errors.New("wrong password")

// lockedError says that a user has made too many attempts.
type lockedError struct{ retryAfter time.Duration }

// Error says when to try again.
func (e *lockedError) Error() string {
	return fmt.Sprintf("too many attempts, retry after %v", e.retryAfter)
}

// auth checks passwords and limits the attempts of each user.
type auth struct{ limiter *throttr.RateLimit }

// login checks a password. It returns errPassword if the password is wrong, a *lockedError after
// too many attempts, and the error of the rate limit if that fails.
func (a *auth) login(ctx context.Context, user, password string) error {
	res, err := a.limiter.Hit(ctx, "login:"+user, scale, attempts)
	if err != nil {
		return err
	}
	if !res.Allowed {
		return &lockedError{retryAfter: res.RetryAfter.Round(time.Second)}
	}
	if password != "secret" {
		return errPassword
	}
	return a.limiter.Reset(ctx, "login:"+user, scale)
}
