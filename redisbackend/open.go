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
	s, err := parse(text)
	if err != nil {
		return nil, &api.CallError{Package: "redisbackend", Err: err}
	}
	c := newConnecting(s.client)
	o := &opened{rediswindow.New(adapter{now: c.now, left: c.left, name: s.client.InitAddress[0]}, s.backend...), c}
	if s.lazy {
		go func() {
			if c.attempt() != nil {
				c.retry()
			}
		}()
		return o, nil
	}
	err = c.connect(ctx)
	if err == nil {
		err = o.Ping(ctx)
	}
	if err != nil {
		_ = o.Close()
		return nil, err
	}
	return o, nil
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
	if err := api.Await(ctx, func() { _ = c.attempt() }); err != nil {
		return &api.CallError{Package: "redisbackend", Call: "connect", Err: err}
	}
	_, err := c.now()
	return err
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

// connectError returns the error of an attempt, without what is secret: a server that does not know AUTH may repeat it.
func (c *connecting) connectError(err error) error {
	err = redisclient.ReplyError(clientError(err), c.option.Password, c.option.Username)
	if !errors.Is(err, window.ErrUnavailable) { // no reply to an attempt is about a key
		err = fmt.Errorf("%w: %w", window.ErrUnavailable, err)
	}
	return &api.CallError{Package: "redisbackend", Call: "connect", Err: err}
}
