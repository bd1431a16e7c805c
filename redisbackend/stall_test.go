//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/throttr-go/throttr/redisbackend"
)

// freeze has the server stand still: it keeps its connections and answers nothing.
func (s *server) freeze(t *testing.T) { s.signal(t, syscall.SIGSTOP) }

// thaw ends what freeze has begun.
func (s *server) thaw(t *testing.T) { s.signal(t, syscall.SIGCONT) }

func (s *server) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	s := startServer(t)
	b := redisbackend.New(s.connect())
	if _, err := b.Hit(t.Context(), "k", time.Hour, 5, 1); err != nil {
		t.Fatal(err)
	}
	s.freeze(t)
	const patience = 50 * time.Millisecond
	for name, test := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		"cancel":                    {func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }, context.Canceled},
		"cancel before deadline":    {func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Hour) }, context.Canceled},
		"deadline of 20 ms reached": {func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), patience/2) }, context.DeadlineExceeded},
	} {
		ctx, cancel := test.ctx()
		time.AfterFunc(patience, cancel)
		start := time.Now()
		_, hit := b.Hit(ctx, "k", time.Hour, 5, 1)
		_, get := b.Get(ctx, "k", time.Hour)
		for _, err := range []error{hit, get, b.Reset(ctx, "other", time.Hour)} {
			if !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), "redisbackend: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	// Those who have left have not cost anybody else the connection.
	s.thaw(t)
	w, err := b.Hit(t.Context(), "k", time.Hour, 5, 1)
	if err != nil || w.Count < 2 || w.Count > 5 {
		t.Errorf("%+v, %v", w, err)
	}
}

// Whoever dials for all and leaves must not fail the others.
func TestALeaverDoesNotFailThoseWhoWaitForTheSameConnection(t *testing.T) {
	s := startServer(t)
	client := s.connect()
	b := redisbackend.New(client)
	s.kill()
	for range 5 { // until the client has given up its old connection
		if _, err := b.Hit(t.Context(), "k", time.Hour, 5, 1); err == nil {
			t.Fatal("a hit on nothing succeeds")
		}
	}
	s.start()
	s.freeze(t) // it accepts, and does not shake hands
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := b.Hit(ctx, "k", time.Hour, 5, 1)
		left <- err
	}()
	stays := make(chan error)
	go func() {
		time.Sleep(20 * time.Millisecond)
		_, err := b.Hit(t.Context(), "k", time.Hour, 5, 1)
		stays <- err
	}()
	time.Sleep(50 * time.Millisecond)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who leaves is told: %v", err)
	}
	s.thaw(t)
	if err := <-stays; err != nil {
		t.Errorf("who stays is told: %v", err)
	}
}
