//go:build unix

package redisbackend_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

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
		_, hit := b.Hit(ctx, "k", time.Hour, 5, 1)
		_, get := b.Get(ctx, "k", time.Hour)
		for _, err := range []error{hit, get, b.Reset(ctx, "other", time.Hour)} {
			if !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), "redisbackend: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if took := time.Since(start); took > 10*time.Second {
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
	s := startOnSocket(t)
	var slow atomic.Bool
	dials, pass := make(chan bool, 10), make(chan bool)
	b := redisbackend.New(s.connect(func(o *rueidis.ClientOption) {
		o.PipelineMultiplex = -1 // one connection
		o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if slow.Load() {
				dials <- true
				select {
				case <-pass:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return s.dial(ctx, d)
		}
	}))
	s.kill()
	for { // until the client has given up its old connection
		_, err := b.Hit(t.Context(), "k", time.Hour, 5, 1)
		if err == nil {
			t.Fatal("a hit on nothing succeeds")
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	s.start()
	slow.Store(true)
	hit := func(ctx context.Context) chan error {
		result := make(chan error, 1)
		go func() {
			_, err := b.Hit(ctx, "k", time.Hour, 5, 1)
			result <- err
		}()
		return result
	}
	ctx, cancel := context.WithCancel(t.Context())
	leaves := hit(ctx)
	<-dials
	stays := hit(t.Context())
	<-time.After(20 * time.Millisecond) // nothing tells that it waits
	cancel()
	if err := <-leaves; !errors.Is(err, context.Canceled) {
		t.Errorf("who leaves is told: %v", err)
	}
	<-time.After(20 * time.Millisecond)
	close(pass)
	if err := <-stays; err != nil {
		t.Errorf("who stays is told: %v", err)
	}
}
