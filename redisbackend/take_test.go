package redisbackend_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// cutter makes connections that end after a number of bytes, in either direction.
type cutter struct {
	server *testkit.Redis
	left   atomic.Int64 // bytes until the cut
	reads  bool         // the bytes are those that are read
}

type cutConn struct {
	net.Conn
	*cutter
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.reads {
		return c.Conn.Write(p)
	}
	left := c.left.Add(-int64(len(p)))
	if left >= 0 {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:max(0, int64(len(p))+left)])
	c.Conn.Close()
	return n, errors.New("cut")
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if left := c.left.Add(-int64(n)); c.reads && left < 0 {
		c.Conn.Close()
		return max(0, n+int(left)), errors.New("cut")
	}
	return n, err
}

func (c *cutter) client(t *testing.T) rueidis.Client {
	return connect(t, c.server, func(o *rueidis.ClientOption) {
		o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := c.server.Dial(ctx, d)
			if err != nil {
				return nil, err
			}
			return &cutConn{conn, c}, nil
		}
	})
}

// A reservation whose give-back is cut off is never given back twice, and nothing else is. What was
// lost stays counted.
//
//evidence:redis A give-back that is cut off after any byte is lost or made once
func TestGiveBacksThatAreCutOff(t *testing.T) {
	s := testkit.StartRedis(t)
	direct := redisbackend.New(connect(t, s))
	for _, reads := range []bool{false, true} {
		lost, made, whole := 0, 0, 0
		for after := int64(0); whole < 3 && after < 4000; after++ {
			c := &cutter{server: s, reads: reads}
			c.left.Store(1 << 40)
			client := c.client(t)
			limiter := throttr.NewRateLimit(redisbackend.New(client))
			key := fmt.Sprint("k", reads, after)
			if _, err := direct.Take(t.Context(), key, limitOf(window.FixedWindow, time.Hour, 10), 3); err != nil {
				t.Fatal(err)
			}
			if after == 0 { // the server has the script
				if _, err := direct.GiveBack(t.Context(), key, limitOf(window.FixedWindow, time.Hour, 10), 1, 1); err != nil {
					t.Fatal(err)
				}
			}
			rv, ok, err := limiter.Reserve(t.Context(), limitOf(window.FixedWindow, time.Hour, 10).For(key, 5))
			if err != nil || !ok {
				t.Fatal(err)
			}
			c.left.Store(after)
			err = rv.Cancel(t.Context())
			c.left.Store(1 << 40)
			if again := rv.Cancel(t.Context()); again != nil {
				t.Errorf("the second Cancel returns %v", again)
			}
			w, getErr := direct.Peek(t.Context(), key, limitOf(window.FixedWindow, time.Hour, 10), 0)
			switch {
			case getErr != nil:
				t.Fatal(getErr)
			case err == nil && w.Count == 3:
				whole++
			case err != nil && w.Count == 8:
				lost++
			case err != nil && w.Count == 3:
				made++
			default:
				t.Errorf("cut after %d bytes: the count is %d, %v", after, w.Count, err)
			}
			client.Close()
		}
		t.Logf("cut while it reads: %v: %d give-backs were lost, %d were made but not confirmed", reads, lost, made)
		expect(t, whole != 0 && lost+made >= 4, "%d are whole", whole)
	}
}
