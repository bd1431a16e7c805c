package redisbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// left is a client that was closed because the backend has left it, before its request was made.
type left struct {
	rueidis.Client
	leave func()
}

// Do implements [rueidis.Client].
func (l *left) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	l.leave()
	return l.Client.Do(ctx, command)
}

// Another call may find that the server of a client is a replica. That is no end of the backend, which no policy
// decides.
func TestAClientThatIsLeftIsNotClosed(t *testing.T) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{testkit.StartRedis(t).Addr}, DisableCache: true})
	testkit.NoError(t, err)
	client.Close()
	for _, test := range []struct {
		leave func(a *adapter)
		want  error
	}{
		{func(a *adapter) { a.state.Store(&state{err: window.ErrUnavailable}) }, window.ErrUnavailable},
		{func(a *adapter) { a.state.Store(&state{err: window.ErrClosed}) }, window.ErrClosed},
		{func(a *adapter) {}, window.ErrClosed},
	} {
		a := &adapter{}
		a.state.Store(&state{client: &left{client, func() { test.leave(a) }}})
		_, err := a.EvalSHA(context.Background(), "digest", nil, nil)
		closed := errors.Is(err, window.ErrClosed)
		testkit.Expect(t, errors.Is(err, test.want) && closed == (test.want == window.ErrClosed), "%v, want %v", err, test.want)
	}
}

// A client that is left is followed by another one, unless the backend is closed by then.
func TestNothingConnectsAfterClose(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var dialed atomic.Int64
			a := &adapter{}
			a.state.Store(&state{client: noClient{}})
			a.option = rueidis.ClientOption{InitAddress: []string{"redis.test:6379"}, ForceSingleClient: true}
			a.option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				dialed.Add(1)
				return nil, errors.New("nobody listens")
			}
			o := &opened{Backend: rediswindow.New(a), client: a}
			a.ctx, o.stop = context.WithCancel(t.Context())
			a.left(noClient{}, window.ErrUnavailable)
			if closed {
				_ = o.Close()
			}
			time.Sleep(time.Second)
			testkit.Expect(t, (dialed.Load() == 0) == closed, "%d attempts to connect, closed: %v", dialed.Load(), closed)
			_ = o.Close()
		})
	}
}

// noClient is a client that can only be closed.
type noClient struct{ rueidis.Client }

// Close implements [rueidis.Client].
func (noClient) Close() {}

// A connection that is not used is closed, before a server does so and a call fails.
func TestIdleConnectionsAreClosed(t *testing.T) {
	defer func(d time.Duration) { idleTime = d }(idleTime)
	idleTime = 100 * time.Millisecond
	s := testkit.StartRedis(t)
	b, err := open(t.Context(), "redis://"+s.Addr)
	testkit.NoError(t, err)
	for range 2 {
		_, err := b.Delete(t.Context(), "k")
		testkit.NoError(t, err)
		for start := time.Now(); !strings.Contains(s.Must(t, "INFO", "clients"), "connected_clients:1\r"); time.Sleep(idleTime) {
			testkit.Expect(t, time.Since(start) < time.Minute, "a connection is open")
		}
	}
	testkit.NoError(t, b.Close())
}

func TestASubscriptionIsConfirmedBeforeItsMessages(t *testing.T) {
	s := testkit.StartRedis(t)
	b, err := open(t.Context(), "redis://"+s.Addr)
	testkit.NoError(t, err)
	defer b.Close()
	testkit.Subscribes(t, s, b.(*opened).client)
}
