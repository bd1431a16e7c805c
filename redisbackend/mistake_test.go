package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// A mistake in the program is not an outage, so no policy applies to it.
//
//evidence:redis A mistake in the program is never "allowed" by a policy
func TestMistakesInTheProgramAreNotAllowed(t *testing.T) {
	b := redisbackend.New(connect(t, testkit.StartRedis(t)))
	for _, policy := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		limiter := throttr.NewRateLimit(b, throttr.WithPolicy(policy))
		for _, test := range []struct {
			scale            time.Duration
			limit, increment uint64
			want             error
		}{
			{60, 5, 1, window.ErrScale},
			{time.Second + time.Nanosecond, 5, 1, window.ErrScale},
			{rediswindow.MaxScale + time.Microsecond, 5, 1, window.ErrScale},
			{time.Second, rediswindow.MaxCount + 1, 1, window.ErrRange},
		} {
			res, err := limiter.HitN(context.Background(), "k", throttr.Limit{Max: test.limit, Scale: test.scale}, test.increment)
			expect(t, errors.Is(err, test.want) && !res.Allowed, "%v, %+v: %+v, %v", policy, test, res, err)
		}
	}
}

func TestNewPanicsForInvalidArguments(t *testing.T) {
	client := connect(t, testkit.StartRedis(t))
	for want, f := range map[string]func(){
		"redisbackend: New: client is nil":   func() { redisbackend.New(nil) },
		"rediswindow: New: option 2 is nil":  func() { redisbackend.New(client, rediswindow.WithPrefix("a"), nil) },
		"rediswindow: WithClock: now is nil": func() { rediswindow.WithClock(nil) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("the panic is %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}
