package redisbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// While a server hangs, Close does not wait for the timeouts of the client, and nobody waits for Close.
func TestCloseOfAServerThatHangsEndsSoon(t *testing.T) {
	s := testkit.StartRedis(t)
	b, err := throttr.Open(t.Context(), "redis://"+s.Addr)
	noError(t, err)
	limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil))
	hit := func(timeout time.Duration) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		start := time.Now()
		_, err := limiter.Hit(ctx, "k", time.Minute, 100)
		return time.Since(start), err
	}
	_, err = hit(time.Second)
	noError(t, err)
	s.Freeze(t)
	defer s.Thaw(t)
	go hit(time.Minute)
	time.Sleep(50 * time.Millisecond)
	begun, closed := time.Now(), make(chan struct{})
	go func() {
		defer close(closed)
		b.Close()
	}()
	time.Sleep(50 * time.Millisecond)
	took, err := hit(20 * time.Millisecond)
	expect(t, err != nil && took < 500*time.Millisecond, "a hit with a ctx of 20 ms took %v: %v", took, err)
	select {
	case <-closed:
		t.Logf("closed after %v", time.Since(begun))
	case <-time.After(10 * time.Second):
		t.Error("not closed after 10 s")
	}
}
