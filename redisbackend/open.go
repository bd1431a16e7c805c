package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+unix"} {
		window.Register(scheme, open)
	}
}

// parameters are the URL parameters that rueidis.ParseURL reads.
var parameters = []string{"addr", "db", "dial_timeout", "write_timeout", "protocol", "client_name", "master_set", "skip_verify"}

// opened is a backend with a client of its own.
type opened struct {
	*rediswindow.Backend
	client interface{ Close() }
}

// Close ends the backend and its client. Further calls fail with an error that matches [window.ErrClosed].
func (o *opened) Close() error {
	err := o.Backend.Close()
	o.client.Close()
	return err
}

// open opens the backend of a URL.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	u, err := redisclient.Parse(text, parameters...)
	if err != nil {
		return nil, &api.CallError{Package: "redisbackend", Err: err}
	}
	option, err := optionOf(u)
	if err != nil {
		return nil, &api.CallError{Package: "redisbackend", Err: err}
	}
	connecting := connect(option, u.Lazy)
	if !u.Lazy {
		select {
		case <-connecting.attempted:
		case <-ctx.Done():
			connecting.Close()
			return nil, fmt.Errorf("redisbackend: connect: %w", ctx.Err())
		}
		if _, err := connecting.now(); err != nil {
			connecting.Close()
			return nil, err
		}
	}
	b := rediswindow.New(connecting, rediswindow.WithPrefix(u.Prefix), rediswindow.WithMaxLog(u.MaxLog), rediswindow.WithMaxQueued(u.MaxQueued))
	o := &opened{b, connecting}
	if !u.Lazy {
		if err := o.Ping(ctx); err != nil {
			_ = o.Close()
			return nil, err
		}
	}
	return o, nil
}

// optionOf returns the options of the client of a URL.
func optionOf(u *redisclient.URL) (rueidis.ClientOption, error) {
	scheme := u.Scheme
	if scheme == "redis+unix" {
		scheme = "unix"
	}
	option, err := rueidis.ParseURL(u.String(scheme))
	if err != nil {
		return option, u.Malformed(err)
	}
	option.DisableAutoPipelining = true // calls share requests already; a connection for each serves a lone caller sooner
	option.DisableCache = true          // nothing is cached here, and not every server, proxy or user may track keys
	return option, nil
}

// connecting is a [rediswindow.Client] that connects in the background: at first, and when the server turns out to be
// a replica. An address that leads to another primary by then is used soon, although connections to the old one
// are still there.
type connecting struct {
	option    rueidis.ClientOption
	attempted chan struct{} // closed after the first attempt
	ctx       context.Context
	stop      context.CancelFunc

	mu     sync.Mutex // guards what follows
	client *adapter   // nil: there is none at present
	err    error      // why
}

// The pauses between attempts to connect.
const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 400 * time.Millisecond
)

// connect connects until that succeeds, or once.
func connect(option rueidis.ClientOption, untilItSucceeds bool) *connecting {
	c := &connecting{option: option, attempted: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.err = connectError(errors.New("no attempt has ended yet"), &option)
	go func() {
		connected := c.attempt()
		close(c.attempted)
		if untilItSucceeds && !connected {
			c.retry()
		}
	}()
	return c
}

// retry makes attempts, after pauses, until one succeeds, or Close.
func (c *connecting) retry() {
	pause := backoff.New(shortestPause, longestPause)
	for pause.Wait(c.ctx, nil) == nil && !c.attempt() {
	}
}

// attempt makes an attempt to connect.
func (c *connecting) attempt() (connected bool) {
	client, err := rueidis.NewClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		if c.ctx.Err() == nil {
			c.err = connectError(err, &c.option)
		}
		return false
	case c.ctx.Err() != nil:
		go client.Close()
	default:
		c.client = &adapter{client: client}
		c.err = nil
	}
	return true
}

// now returns the client, or why there is none.
func (c *connecting) now() (*adapter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client, c.err
}

// eval runs a script. If its reply says that the server is a replica, another client is made.
func (c *connecting) eval(run func(*adapter) (string, error)) (string, error) {
	client, err := c.now()
	if err != nil {
		return "", err
	}
	reply, err := run(client)
	if !redisclient.Demoted(err) {
		return reply, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == client {
		c.client = nil
		c.err = connectError(err, &c.option)
		go client.client.Close()
		go c.retry()
	}
	return reply, err
}

// Close ends the client and further attempts. It returns after [redisclient.CloseTimeout] at the latest.
func (c *connecting) Close() {
	c.stop()
	c.mu.Lock()
	client := c.client
	c.client = nil
	c.err = window.ErrClosed
	c.mu.Unlock()
	if client != nil {
		_ = redisclient.Close(func() error {
			client.client.Close()
			return nil
		})
	}
}

// EvalSHA implements [rediswindow.Client].
func (c *connecting) EvalSHA(ctx context.Context, digest string, keys, args []string) (string, error) {
	return c.eval(func(client *adapter) (string, error) { return client.EvalSHA(ctx, digest, keys, args) })
}

// Eval implements [rediswindow.Client].
func (c *connecting) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	return c.eval(func(client *adapter) (string, error) { return client.Eval(ctx, script, keys, args) })
}

// Scan implements [rediswindow.Client].
func (c *connecting) Scan(ctx context.Context, match string) iter.Seq2[string, error] {
	client, err := c.now()
	if err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return client.Scan(ctx, match)
}

// Subscribe implements [rediswindow.Subscriber].
func (c *connecting) Subscribe(ctx context.Context, channel string, received func(message string)) error {
	client, err := c.now()
	if err != nil {
		return err
	}
	return client.Subscribe(ctx, channel, received)
}

// Cluster implements [rediswindow.Client].
func (c *connecting) Cluster() (bool, error) {
	client, err := c.now()
	if err != nil {
		return false, err
	}
	return client.Cluster()
}

// Name implements [rediswindow.Client].
func (c *connecting) Name() string { return c.option.InitAddress[0] }

// connectError returns the error of an attempt to connect, without the user and the password: the server may repeat
// them, such as one that does not know AUTH.
func connectError(err error, option *rueidis.ClientOption) error {
	if err := redisclient.ReplyError(err, option.Password, option.Username); errors.Is(err, window.ErrUnavailable) {
		return &api.CallError{Package: "redisbackend", Call: "connect", Err: err}
	}
	return &api.CallError{Package: "redisbackend", Call: "connect", Err: fmt.Errorf("%w: %w", window.ErrUnavailable, err)}
}
