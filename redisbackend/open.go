package redisbackend

import (
	"context"
	"errors"
	"fmt"
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

// opened is a backend with clients of its own.
type opened struct {
	*rediswindow.Backend
	client *adapter
	stop   context.CancelFunc // ends its ctx
}

// Close ends the backend and its client. Further calls fail with an error that matches [window.ErrClosed]. It returns
// after [api.CloseTimeout] at the latest.
func (o *opened) Close() error {
	err := o.Backend.Close()
	o.stop()
	if last := o.client.state.Swap(&state{err: window.ErrClosed}); last.client != nil {
		api.Close(last.client.Close)
	}
	return err
}

// startWait is how long open waits for the first attempt to connect if it is lazy, so that a program whose store is
// there has its first call decided by it.
const startWait = 500 * time.Millisecond

// open opens the backend of a URL.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	s, err := parse(text)
	if err != nil {
		return nil, &api.CallError{Package: "redisbackend", Err: err}
	}
	a := &adapter{option: s.client, name: s.client.InitAddress[0]}
	a.state.Store(&state{err: a.connectError(errors.New("no attempt has ended yet"))})
	o := &opened{client: a}
	a.ctx, o.stop = context.WithCancel(context.Background())
	o.Backend = rediswindow.New(a, s.backend...)
	if s.lazy {
		begun, cancel := context.WithTimeout(ctx, startWait)
		defer cancel()
		_ = api.Await(begun, func() {
			if a.attempt() != nil {
				go a.connect()
			}
		})
		return o, nil
	}
	if err = api.Await(ctx, func() { _ = a.attempt() }); err != nil {
		err = &api.CallError{Package: "redisbackend", Call: "connect", Err: err}
	} else if _, err = a.now(); err == nil {
		err = o.Ping(ctx)
	}
	if err != nil {
		_ = o.Close()
		return nil, err
	}
	return o, nil
}

// connect makes attempts, after pauses, until one succeeds, or Close.
func (a *adapter) connect() {
	pause := outage.NewBackoff(50*time.Millisecond, 400*time.Millisecond)
	for pause.Wait(a.ctx, nil) == nil && a.attempt() != nil {
	}
}

// attempt makes an attempt to connect, which is in vain after Close.
func (a *adapter) attempt() error {
	before := a.state.Load()
	client, err := rueidis.NewClient(a.option)
	after := &state{client: client}
	if err != nil {
		after = &state{err: a.connectError(err)}
	}
	if (a.ctx.Err() != nil || !a.state.CompareAndSwap(before, after)) && err == nil {
		go client.Close()
	}
	return after.err
}

// left has another client made, unless it is shared, as the server of this one has become a replica: an address that
// leads to another primary by then is used soon, although connections to the old one are still there.
func (a *adapter) left(client rueidis.Client, why error) {
	s := a.state.Load()
	if !a.shared && s.client == client && a.state.CompareAndSwap(s, &state{err: a.connectError(why)}) {
		go client.Close()
		go a.connect()
	}
}

// connectError returns the error of an attempt, without what is secret: a server that does not know AUTH may repeat it.
func (a *adapter) connectError(err error) error {
	err = redisclient.ReplyError(clientError(err), a.option.Password, a.option.Username)
	if !errors.Is(err, window.ErrUnavailable) { // no reply to an attempt is about a key
		err = fmt.Errorf("%w: %w", window.ErrUnavailable, err)
	}
	return &api.CallError{Package: "redisbackend", Call: "connect", Err: err}
}
