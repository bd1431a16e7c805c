package redisbackend_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
)

func TestOpenIsABackendThatCanBeClosed(t *testing.T) {
	b, err := redisbackend.Open(t.Context(), "redis://"+startServer(t).addr)
	if err != nil {
		t.Fatal(err)
	}
	limiter := throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits))
	for i := range 3 {
		res, err := limiter.Hit(t.Context(), "k", time.Minute, 2)
		if err != nil || res.Allowed != (i < 2) {
			t.Errorf("hit %d: %v, %v", i, res, err)
		}
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := limiter.Hit(t.Context(), "k", time.Minute, 2); !errors.Is(err, throttr.ErrClosed) {
		t.Errorf("a hit after Close: %v", err)
	}
}

func TestOpenReturnsErrors(t *testing.T) {
	for _, url := range []string{"", "http://127.0.0.1", "redis://127.0.0.1:1"} {
		if b, err := redisbackend.Open(t.Context(), url); err == nil || b != nil {
			t.Errorf("%q: %v, %v", url, b, err)
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := redisbackend.Open(ctx, "redis://"+silent.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("a ctx that has ended: %v", err)
	}
}
