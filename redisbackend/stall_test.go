//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

func TestCallEndsWithItsContext(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	must(t, b.Hit, "k", limitOf(window.FixedWindow, time.Hour, 5), 1)
	s.Freeze(t)
	const patience = 50 * time.Millisecond
	for name, test := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		"cancel":                 {func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }, context.Canceled},
		"cancel before deadline": {func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Hour) }, context.Canceled},
		"deadline reached":       {func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), patience) }, context.DeadlineExceeded},
	} {
		ctx, cancel := test.ctx()
		defer cancel()
		if test.want == context.Canceled {
			time.AfterFunc(patience, cancel)
		}
		start := time.Now()
		_, hit := b.Hit(ctx, "k", limitOf(window.FixedWindow, time.Hour, 5), 1)
		_, get := b.Peek(ctx, "k", limitOf(window.FixedWindow, time.Hour, 5), 0)
		for _, err := range []error{hit, get, b.Reset(ctx, "other", limitOf(window.FixedWindow, time.Hour, 5))} {
			expect(t, errors.Is(err, test.want) && strings.HasPrefix(err.Error(), "rediswindow: "), "%s: %v", name, err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	// The abandoned calls have not closed the connection for other calls.
	s.Thaw(t)
	w, err := b.Hit(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 5), 1)
	expect(t, err == nil && w.Count >= 2 && w.Count <= 5, "%+v, %v", w, err)
}

// within returns the result of a call, which must come within 10 s.
func within(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the call does not return")
		return nil
	}
}

// While Redis hangs, the calls of a RateLimit on a client of the user's end with its time limit, and leave the
// connection to the user's own commands.
func TestCommandsOfTheUserSurviveAServerThatHangs(t *testing.T) {
	s := testkit.StartRedis(t)
	client := connect(t, s, func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 }) // one connection
	limiter := throttr.NewRateLimit(redisbackend.New(client), throttr.WithLogger(nil), throttr.WithTimeout(100*time.Millisecond))
	take := func() (time.Duration, error) {
		begun := time.Now()
		_, err := limiter.Take(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, 5), 1)
		return time.Since(begun), err
	}
	_, err := take()
	noError(t, err)
	s.Freeze(t)
	for range 2 { // the first one alone on the connection, the second one behind the user's
		took, err := take()
		expect(t, errors.Is(err, throttr.ErrUnavailable) && took < time.Second, "%v, after %v", err, took)
		if err == nil {
			break
		}
	}
	own := make(chan error, 1)
	go func() { own <- client.Do(t.Context(), client.B().Set().Key("mine").Value("1").Build()).Error() }()
	time.Sleep(50 * time.Millisecond)
	took, err := take()
	expect(t, errors.Is(err, throttr.ErrUnavailable) && took < time.Second, "%v, after %v", err, took)
	s.Thaw(t)
	noError(t, within(t, own))
	size, err := redis(t, client, "GET", "mine").ToString()
	expect(t, err == nil && size == "1", "%q, %v", size, err)
}
