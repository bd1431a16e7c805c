package redisbackend_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// An address is pointed at a new primary, and the old one becomes a replica that keeps its connections.
func TestAPrimaryThatBecomesAReplicaIsLeft(t *testing.T) {
	old, next := testkit.StartRedis(t), testkit.StartRedis(t)
	var target atomic.Value
	target.Store(old.Addr)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	testkit.Serve(t, l, func(client net.Conn) {
		if server, err := net.Dial("tcp", target.Load().(string)); err == nil {
			testkit.Relay(client, server, client, server)
		}
	})
	b, err := throttr.Open(t.Context(), "redis://"+l.Addr().String())
	noError(t, err)
	defer b.Close()
	limiter := throttr.NewRateLimit(b, throttr.WithLogger(nil))
	_, err = limiter.Hit(t.Context(), "k", time.Minute, 1000)
	noError(t, err)
	old.Must(t, "REPLICAOF", "127.0.0.1", next.Port)
	for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(20 * time.Millisecond) { // it may be a replica for a while before the address changes
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 1000)
		expect(t, err != nil, "a replica counts")
	}
	target.Store(next.Addr)
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 1000)
		if err == nil {
			t.Logf("works again after %v", time.Since(begun))
			return
		}
		expect(t, time.Since(begun) < 5*time.Second, "after %v: %v", time.Since(begun), err)
	}
}
