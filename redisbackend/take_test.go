package redisbackend_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// cutter is a proxy to a server. Its connections end after so many bytes of requests, or of responses.
type cutter struct{ requests, responses atomic.Int64 }

// start starts the proxy, and returns its address. It ends with the test.
func (c *cutter) start(t *testing.T, s *testkit.Redis) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	testkit.Serve(t, l, func(client net.Conn) {
		server, err := s.Dial(context.Background(), &net.Dialer{})
		if err != nil {
			client.Close()
			return
		}
		testkit.Relay(client, server, counted{client, &c.requests}, counted{server, &c.responses})
	})
	return l.Addr().String()
}

// reset sets how many bytes are left.
func (c *cutter) reset(requests, responses int64) {
	c.requests.Store(requests)
	c.responses.Store(responses)
}

// counted is a reader that ends when no bytes are left.
type counted struct {
	io.Reader
	left *atomic.Int64
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if left := c.left.Add(-int64(n)); left < 0 {
		return max(0, n+int(left)), io.EOF
	}
	return n, err
}

// A reservation whose give-back is cut off is never given back twice, and nothing else is. What was lost stays counted.
func TestGiveBacksThatAreCutOff(t *testing.T) {
	const all = 1 << 40
	s := testkit.StartRedis(t)
	direct := redisbackend.New(connect(t, s))
	l := limitOf(window.FixedWindow, time.Hour, 10)
	must(t, direct.Take, "other", l, 1) // the server has the script
	c := &cutter{}
	addr := c.start(t, s)
	for _, reads := range []bool{false, true} {
		lost, made, whole := 0, 0, 0
		for after := int64(0); whole < 3 && after < 4000; after++ {
			c.reset(all, all)
			client := connectTo(t, rueidis.ClientOption{InitAddress: []string{addr}, ConnWriteTimeout: patience})
			limiter := throttr.NewRateLimit(redisbackend.New(client))
			key := fmt.Sprint("k", reads, after)
			must(t, direct.Take, key, l, 3)
			rv, ok, err := limiter.Reserve(t.Context(), l.For(key, 5))
			expect(t, ok && err == nil, "%v, %v", ok, err)
			if reads {
				c.reset(all, after)
			} else {
				c.reset(after, all)
			}
			err = rv.Cancel(t.Context())
			c.reset(all, all)
			noError(t, rv.Cancel(t.Context())) // it does nothing
			switch count := must(t, direct.Peek, key, l, 0).Count; {
			case err == nil && count == 3:
				whole++
			case err != nil && count == 8:
				lost++
			case err != nil && count == 3:
				made++
			default:
				t.Errorf("cut after %d bytes: the count is %d, %v", after, count, err)
			}
			client.Close()
		}
		t.Logf("cut while it reads: %v: %d give-backs were lost, %d were made but not confirmed", reads, lost, made)
		expect(t, whole != 0 && lost+made >= 4, "%d are whole", whole)
	}
}
