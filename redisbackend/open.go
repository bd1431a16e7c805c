package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/internal/inside"
	"github.com/throttr-go/throttr/internal/redisurl"
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

func init() { inside.AddInner(func(o *opened) any { return o.Backend }) }

// Close ends the backend and its client. Further calls fail with an error that matches [window.ErrClosed].
func (o *opened) Close() error {
	err := o.Backend.Close()
	o.client.Close()
	return err
}

// open opens the backend of a URL.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	u, err := redisurl.Parse(text, parameters...)
	if err != nil {
		return nil, &callerr.Error{Package: "redisbackend", Err: err}
	}
	option, err := optionOf(u)
	if err != nil {
		return nil, &callerr.Error{Package: "redisbackend", Err: err}
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
	return &opened{rediswindow.New(connecting, u.Options...), connecting}, nil
}

// optionOf returns the options of the client of a URL.
func optionOf(u *redisurl.URL) (rueidis.ClientOption, error) {
	scheme := u.Scheme
	if scheme == "redis+unix" {
		scheme = "unix"
	}
	option, err := rueidis.ParseURL(u.String(scheme))
	if err != nil {
		return option, u.Malformed(err)
	}
	option.DisableCache = true // nothing is cached here, and not every server, proxy or user may track keys
	if u.Timeout > 0 {
		option.Dialer.Timeout, option.ConnWriteTimeout = u.Timeout, u.Timeout
	}
	return option, nil
}

// connecting is a [rediswindow.Client] that connects in the background.
type connecting struct {
	option    rueidis.ClientOption
	attempted chan struct{} // closed after the first attempt
	stop      context.CancelFunc

	mu     sync.Mutex // guards what follows
	client *adapter   // nil: not yet
	err    error      // of the last attempt, or of Close
}

// connect connects until that succeeds, or once.
func connect(option rueidis.ClientOption, untilItSucceeds bool) *connecting {
	ctx, stop := context.WithCancel(context.Background())
	c := &connecting{option: option, attempted: make(chan struct{}), stop: stop}
	c.err = &callerr.Error{Package: "redisbackend", Call: "connect", Err: fmt.Errorf("%w: no attempt has ended yet", window.ErrUnavailable)}
	go func() {
		pause := backoff.New(100*time.Millisecond, 5*time.Second)
		c.attempt()
		close(c.attempted)
		for untilItSucceeds && c.waiting() && pause.Wait(ctx, nil) == nil {
			c.attempt()
		}
	}()
	return c
}

// attempt makes an attempt to connect.
func (c *connecting) attempt() {
	client, err := rueidis.NewClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(c.err, window.ErrClosed):
		if err == nil {
			client.Close()
		}
	case err != nil:
		c.err = connectError(err, &c.option)
	default:
		c.client, c.err = &adapter{client}, nil
	}
}

// waiting reports whether there is neither a client nor an end.
func (c *connecting) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client == nil && !errors.Is(c.err, window.ErrClosed)
}

// now returns the client, or why there is none.
func (c *connecting) now() (*adapter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client, c.err
}

// Close ends the client and further attempts.
func (c *connecting) Close() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.client.client.Close()
	} else {
		c.err = window.ErrClosed
	}
}

// EvalSHA implements [rediswindow.Client].
func (c *connecting) EvalSHA(ctx context.Context, digest string, keys, args []string) (string, error) {
	client, err := c.now()
	if err != nil {
		return "", err
	}
	return client.EvalSHA(ctx, digest, keys, args)
}

// Eval implements [rediswindow.Client].
func (c *connecting) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	client, err := c.now()
	if err != nil {
		return "", err
	}
	return client.Eval(ctx, script, keys, args)
}

// Ping implements [rediswindow.Client].
func (c *connecting) Ping(ctx context.Context) error {
	client, err := c.now()
	if err != nil {
		return err
	}
	return client.Ping(ctx)
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

// connectError returns the error of an attempt to connect. The server may repeat the user and password, such
// as one that does not know AUTH.
func connectError(err error, option *rueidis.ClientOption) error {
	if response, ok := rueidis.IsRedisErr(err); ok {
		for _, secret := range []string{option.Username, option.Password} {
			if secret != "" && strings.Contains(response.Error(), secret) {
				err = errors.New("the server responded with an error that has the user or password")
			}
		}
	}
	return &callerr.Error{Package: "redisbackend", Call: "connect", Err: fmt.Errorf("%w: %w", window.ErrUnavailable, err)}
}
