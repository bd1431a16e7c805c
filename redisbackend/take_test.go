package redisbackend_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// Two clients at once are granted exactly the limit, and refusals cost nothing.
//
//evidence:redis Two clients that take and give back never hold more than the limit
func TestTwoClientsTakeExactlyTheLimit(t *testing.T) {
	s := startServer(t)
	backends := []*rediswindow.Backend{redisbackend.New(s.connect()), redisbackend.New(s.connect())}
	const limit = 100
	var held, most atomic.Int64
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			b := backends[g%2]
			for i := range 200 {
				n := int64(1 + i%7)
				w, err := b.Take(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, limit), uint64(n))
				if err != nil {
					t.Error(err)
					return
				}
				if w.Refused {
					continue
				}
				now := held.Add(n)
				for top := most.Load(); now > top && !most.CompareAndSwap(top, now); top = most.Load() {
				}
				if i%11 == 10 {
					continue // it is used
				}
				held.Add(-n)
				if ok, err := b.GiveBack(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, limit), uint64(n), w.ID); !ok || err != nil {
					t.Errorf("%v, %v", ok, err)
				}
			}
		})
	}
	all.Wait()
	w, err := backends[0].Peek(t.Context(), "k", limitOf(window.FixedWindow, time.Hour, limit), 0)
	if err != nil || int64(w.Count) != held.Load() || most.Load() > limit || w.Count > limit {
		t.Errorf("the count is %d, %d are held, %d were at most, %v", w.Count, held.Load(), most.Load(), err)
	}
}

// cutter makes connections that end after a number of bytes, in either direction.
type cutter struct {
	*server
	left  atomic.Int64 // bytes until the cut
	reads bool         // the bytes are those that are read
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
	return c.connect(func(o *rueidis.ClientOption) {
		o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := c.dial(ctx, d)
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
	s := startServer(t)
	direct := redisbackend.New(s.connect())
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
		if whole == 0 || lost+made < 4 {
			t.Errorf("%d are whole", whole)
		}
	}
}

// In a cluster, the windows of one call are in several slots.
func TestTakesInSeveralSlotsAreAllOrNone(t *testing.T) {
	nodes := startCluster(t)
	b := redisbackend.New(nodes[0].connect())
	limits := make([]window.Take, 12)
	for i := range limits {
		limits[i] = limitOf(window.FixedWindow, time.Hour, 10).For(fmt.Sprint("k", i), uint64(1+i%3))
	}
	windows := make([]window.Window, len(limits))
	if granted, err := b.TakeAll(t.Context(), limits, windows); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	for refusing := range limits {
		limits[refusing].Limit.Max = limits[refusing].N
		granted, err := b.TakeAll(t.Context(), limits, windows)
		if granted || err != nil {
			t.Fatalf("%v, %v", granted, err)
		}
		limits[refusing].Limit.Max = 10
		for i, l := range limits {
			w, err := b.Peek(t.Context(), l.Key, l.Limit, 0)
			if err != nil || w.Count != l.N || windows[i].Count != l.N || windows[i].ID != w.ID {
				t.Errorf("take %d refuses: the window of take %d is %+v, %v, and was returned as %+v", refusing, i, w, err, windows[i])
			}
		}
	}
}

//evidence:redis A take is one round trip
func TestTakeIsOneRoundTrip(t *testing.T) {
	client := startServer(t).connect()
	limiter := throttr.NewRateLimit(redisbackend.New(client))
	call := func() {
		if _, _, err := limiter.TakeAll(t.Context(), limitOf(window.FixedWindow, time.Hour, 100).For("a", 1),
			limitOf(window.FixedWindow, time.Minute, 100).For("b", 1)); err != nil {
			t.Fatal(err)
		}
	}
	call() // The server now has the script.
	redis(t, client, "CONFIG", "RESETSTAT")
	for range 10 {
		call()
	}
	stats, err := redis(t, client, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cmdstat_evalsha:calls=10,", "cmdstat_hget:calls=20,", "cmdstat_hset:calls=20,"} {
		if !strings.Contains(stats, want) {
			t.Errorf("no %s in %s", want, stats)
		}
	}
}

func TestNoTakesAreGrantedAfterTheEndOfTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if granted, err := redisbackend.New(startServer(t).connect()).TakeAll(ctx, nil, nil); !granted || err != nil {
		t.Errorf("%v, %v", granted, err)
	}
}
