package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
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
var parameters = []string{"addr", "db", "dial_timeout", "write_timeout", "protocol", "client_name", "master_set",
	"skip_verify"}

// opened is a backend with a client of its own.
type opened struct {
	*rediswindow.Backend
	client *connecting
}

// Close ends the backend and its client. Further calls fail with an error that matches [window.ErrClosed].
func (o *opened) Close() error {
	err := o.Backend.Close()
	o.client.close()
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
	c := newConnecting(option)
	o := &opened{rediswindow.New(
		adapter{now: c.now, left: c.left, name: option.InitAddress[0]},
		rediswindow.WithPrefix(u.Prefix), rediswindow.WithMaxLog(u.MaxLog), rediswindow.WithMaxQueued(u.MaxQueued),
	), c}
	if u.Lazy {
		go func() {
			if c.attempt() != nil {
				c.retry()
			}
		}()
		return o, nil
	}
	if err := c.connect(ctx); err != nil {
		_ = o.Close()
		return nil, err
	}
	if err := o.Ping(ctx); err != nil {
		_ = o.Close()
		return nil, err
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
		return option, redisclient.ErrMalformed
	}
	option.DisableAutoPipelining = true // calls share requests already; a connection for each serves a lone caller sooner
	option.DisableCache = true          // nothing is cached here, and not every server, proxy or user may track keys
	return option, nil
}

// connecting is a client that connects in the background: at first, if it is lazy, and when the server turns out to be
// a replica. An address that leads to another primary by then is used soon, although connections to the old one are
// still there.
type connecting struct {
	option rueidis.ClientOption
	ctx    context.Context // until Close
	stop   context.CancelFunc

	mu     sync.Mutex     // guards what follows
	client rueidis.Client // nil: there is none at present
	err    error          // why
}

// The pauses between attempts to connect.
const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 400 * time.Millisecond
)

func newConnecting(option rueidis.ClientOption) *connecting {
	c := &connecting{option: option}
	c.err = c.connectError(errors.New("no attempt has ended yet"))
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// retry makes attempts, after pauses, until one succeeds, or Close.
func (c *connecting) retry() {
	pause := outage.NewBackoff(shortestPause, longestPause)
	for pause.Wait(c.ctx, nil) == nil && c.attempt() != nil {
	}
}

// connect makes an attempt, and returns its error, or that of ctx.
func (c *connecting) connect(ctx context.Context) error {
	attempted := make(chan error, 1)
	go func() { attempted <- c.attempt() }()
	select {
	case err := <-attempted:
		return err
	case <-ctx.Done():
		return fmt.Errorf("redisbackend: connect: %w", ctx.Err())
	}
}

// attempt makes an attempt to connect.
func (c *connecting) attempt() error {
	client, err := rueidis.NewClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		if err == nil {
			go client.Close()
		}
	case err != nil:
		c.err = c.connectError(err)
	default:
		c.client = client
		c.err = nil
	}
	return c.err
}

// now returns the client, or why there is none.
func (c *connecting) now() (rueidis.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client, c.err
}

// left has another client made, as the server of this one is a replica.
func (c *connecting) left(client rueidis.Client, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == client {
		c.client = nil
		c.err = c.connectError(why)
		go client.Close()
		go c.retry()
	}
}

// close ends the client and further attempts. It returns after [api.CloseTimeout] at the latest.
func (c *connecting) close() {
	c.stop()
	c.mu.Lock()
	client := c.client
	c.client = nil
	c.err = window.ErrClosed
	c.mu.Unlock()
	if client != nil {
		api.Close(client.Close)
	}
}

func (c *connecting) connectError(err error) error {
	return redisclient.ConnectError("redisbackend", clientError(err), c.option.Password, c.option.Username)
}
